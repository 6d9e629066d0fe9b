//! The page, the daemon behind the server, and protocols whose messages others define.

use drupe_extension_api::control::Whoami;
use serde_json::{Value, json};

use super::{ApiOperation, TypeSchemas, get, post};
use crate::{
    failure::FaultBody,
    routes::{page::Markup, sessions::AcceptedMessage, sign_in::SignIn},
};
use axum::http::Method;

pub fn operations(s: &mut TypeSchemas) -> Vec<ApiOperation> {
    let failure = s.written::<FaultBody>();
    let mut all = page(s, &failure);
    all.extend(daemon(s, &failure));
    all.push(hooks(s, &failure));
    all.extend(protocols(&failure));
    all
}

fn page(s: &mut TypeSchemas, failure: &Value) -> Vec<ApiOperation> {
    let text = || json!({ "type": "string" });
    let unchanged = "The browser has it already, as it says with `If-None-Match`.";
    vec![
        get("/", "page", "Gives the web page.", failure)
            .gives_as(200, "The page.", "text/html", text())
            .gives_nothing(304, unchanged)
            .gives_nothing(401, "How one signs in.")
            .gives_as(401, "How one signs in.", "text/html", text()),
        get("/page/{*file}", "page", "Gives a file of the page.", failure)
            .detail("Those that show how to sign in need no token.")
            .gives_as(200, "The file, in the form that its name says.", "*/*", json!({}))
            .gives_nothing(304, unchanged)
            .faults(&[400, 404]),
        post(
            "/page/markdown",
            "page",
            "Makes markup of markdown, of which nothing runs and nothing is loaded.",
            failure,
        )
        .body_as(false, "text/markdown", json!({}))
        .gives(200, "The markup.", s.written::<Markup>()),
        get(
            "/sign-in",
            "page",
            "Gives a browser the token that was promised to whoever shows the code.",
            failure,
        )
        .open()
        .queries(&s.fields::<SignIn>())
        .gives_nothing(303, "The browser has the cookie, and goes to the page.")
        .header(303, "Set-Cookie", "The token.")
        .header(303, "Location", "The page.")
        .faults(&[400]),
        get("/embed.js", "page", "Gives the script with which a page of another site opens a chat.", failure)
            .open()
            .gives_as(200, "The script.", "text/javascript", json!({ "type": "string" })),
        get("/embed/{embed}", "page", "Gives the frame of such a chat.", failure)
            .open()
            .gives_as(200, "The page in the frame.", "text/html", json!({ "type": "string" }))
            .faults(&[404]),
        post("/sign-out", "page", "Ends the token in the cookie, and has the browser forget it.", failure)
            .gives_nothing(303, "The browser has forgotten it, and goes to how one signs in.")
            .header(303, "Set-Cookie", "An empty one, which ends the cookie.")
            .header(303, "Location", "The page."),
    ]
}

fn daemon(s: &mut TypeSchemas, failure: &Value) -> Vec<ApiOperation> {
    let text = || json!({ "type": "string" });
    let get = |path, does| get(path, "daemon", does, failure);
    vec![
        get("/healthz", "Says that the server is there.").open().gives_as(
            200,
            "It is.",
            "text/plain",
            json!({ "const": "ok\n" }),
        ),
        get("/readyz", "Says that the daemon is there, and who asks.").gives(
            200,
            "It is.",
            s.written::<Whoami>(),
        ),
        get("/openapi.json", "Gives this document.").gives(200, "The document.", json!({ "type": "object" })),
        get("/metrics", "Gives figures for Prometheus.")
            .detail("Needs a token that was made with `--may read,inspect --sessions \"*\"`.")
            .gives_as(200, "The figures.", "text/plain", text()),
    ]
}

fn hooks(s: &mut TypeSchemas, failure: &Value) -> ApiOperation {
    let header = |text: &str| json!({ "type": "string", "pattern": text });
    post("/hooks/{name}", "protocols", "Takes the delivery of a webhook in, for the agent that the hook names.", failure)
        .detail(
            "It bears no token: its signature is its credential, in the headers of Standard Webhooks 1.0.0 or in those of GitHub, \
             as the hook says. A delivery that comes again is the same message.",
        )
        .signed()
        .asks("webhook-id", "Standard Webhooks: names the delivery.", header("^[!--/-~]{1,256}$"))
        .asks("webhook-timestamp", "Standard Webhooks: seconds of Unix time; 300 s may lie between.", header("^[0-9]+$"))
        .asks("webhook-signature", "Standard Webhooks: `v1,` and base64; several with spaces between.", json!({ "type": "string" }))
        .asks("X-Hub-Signature-256", "GitHub: `sha256=` and hexadecimal digits.", header("^sha256=[0-9a-fA-F]{64}$"))
        .asks("X-GitHub-Delivery", "GitHub: names the delivery.", header("^[!-~]{1,256}$"))
        .asks("X-GitHub-Event", "GitHub: the event, which the agent is told.", json!({ "type": "string" }))
        .body_as(false, "application/json", json!({}))
        .gives(202, "The message was accepted, and will be answered.", s.written::<AcceptedMessage>())
        .header(202, "Location", "Where the answer will be, for a token that reaches the session.")
        .faults(&[429, 504])
}

fn protocols(failure: &Value) -> Vec<ApiOperation> {
    let lines = |path, does| {
        get(path, "protocols", does, failure)
            .detail("The connection is no longer HTTP afterwards. It is for `Connection: Upgrade` with `Upgrade: drupe-stdio`.")
            .gives_nothing(101, "The connection carries lines from now on.")
            .faults(&[426])
    };
    let message = || json!({ "type": "object", "description": "A message of JSON-RPC 2.0, as the protocol defines it." });
    let mcp = |method, does| {
        ApiOperation::new(method, "/mcp", "protocols", does, failure)
            .detail(
                "Revisions 2025-11-25 and 2026-07-28 of the Model Context Protocol, over streamable HTTP.",
            )
            .asks("MCP-Protocol-Version", "The revision.", json!({ "type": "string" }))
            .asks("Mcp-Session-Id", "The session, of revision 2025-11-25.", json!({ "type": "string" }))
            .foreign(&[400, 404, 405, 406, 415, 422])
    };
    let older =
        |method, path, does| ApiOperation::new(method, path, "protocols", does, failure).foreign(&[422]);
    let stream = json!({ "type": "string" });
    vec![
        lines("/stdio/acp", "Goes over to the Agent Client Protocol, for an editor."),
        lines(
            "/stdio/mcp",
            "Goes over to the Model Context Protocol, for a client that starts its servers as programs.",
        ),
        mcp(Method::POST, "Sends a message of the Model Context Protocol.")
            .body(true, message())
            .gives(200, "The answer.", message())
            .gives_as(200, "The answer.", "text/event-stream", stream.clone())
            .gives_nothing(202, "The message needs no answer."),
        mcp(Method::GET, "Follows what the server says in a session of the Model Context Protocol.")
            .gives_as(200, "The messages of the server.", "text/event-stream", stream),
        mcp(Method::DELETE, "Ends a session of the Model Context Protocol.")
            .gives_nothing(202, "It has ended.")
            .gives_nothing(204, "It has ended."),
        older(
            Method::GET,
            "/mcp/sse",
            "Opens a stream of events, whose first one says where the client sends what it says.",
        )
        .gives_as(200, "What the server says.", "text/event-stream", json!({ "type": "string" })),
        older(Method::POST, "/mcp/messages", "Takes a message of the client of such a stream.")
            .query("sessionId", true, "The stream, as its first event says.", json!({ "type": "string" }))
            .body(true, message())
            .gives_as(202, "The answer comes over the stream.", "text/plain", json!({ "type": "string" }))
            .gives(400, "The message is none.", message())
            .faults(&[404]),
        older(
            Method::GET,
            "/mcp/ws",
            "Goes over to a WebSocket with a message of the protocol in each of its own.",
        )
        .gives_nothing(101, "The connection is a WebSocket, with the subprotocol `mcp`.")
        .faults(&[400, 426]),
    ]
}
