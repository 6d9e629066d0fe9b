"""What the scripts of this folder share: where the door is, and a list of checks that are run one by one."""

import os
import sys
import traceback

URL = os.environ["DRUPE_URL"].rstrip("/")
KEY = os.environ["DRUPE_KEY"]
MODEL = os.environ.get("DRUPE_MODEL", "drupe")
GROUPS = sys.argv[1:] or ["core"]
TOOL = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
}

CHECKS = []


def check(group):
    """Adds a check to a group."""

    def add(function):
        CHECKS.append((group, function))
        return function

    return add


def refused(kind, call, **expected):
    """The error of a class that a call must raise, with these attributes."""
    try:
        call()
    except kind as error:
        for name, value in expected.items():
            found = getattr(error, name)
            assert found == value, f"{name} is {found!r}, not {value!r}"
        return error
    raise AssertionError(f"it was not refused with {kind.__name__}")


def valid(answer):
    """An answer that has every field that its type demands, and no value that it does not know."""
    type(answer).model_validate_json(answer.to_json())
    return answer


def run():
    """Runs the checks of the groups that were asked for, and ends with 1 where one failed."""
    failed = 0
    for group, function in CHECKS:
        if group not in GROUPS:
            continue
        try:
            function()
            print(f"ok    {group:8} {function.__name__}")
        except Exception:
            failed += 1
            print(f"FAIL  {group:8} {function.__name__}")
            traceback.print_exc()
    sys.exit(1 if failed else 0)
