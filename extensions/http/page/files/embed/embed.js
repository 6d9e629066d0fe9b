// For pages of other sites: a button at the corner that opens a chat with an agent of this daemon, in a frame.
//
// `data-embed` is the name of the embed. `data-visitor-url` is a path of the site that answers with a token for the visitor who is there, as text; `data-visitor` is
// such a token itself. `data-title` and `data-greeting` are shown.
(() => {
  const script = document.currentScript;
  const door = new URL(script.src).origin;
  const { embed, visitor, visitorUrl, title = "Chat", greeting = "" } = script.dataset;
  if (!embed) {
    console.error("drupe: the script needs `data-embed`, the name of an entry of `embeds`");
    return;
  }

  const place = (element, style) => Object.assign(element.style, style);
  const frame = document.createElement("iframe");
  frame.title = title;
  frame.hidden = true;
  place(frame, {
    position: "fixed", right: "16px", bottom: "76px", width: "min(400px, calc(100vw - 32px))",
    height: "min(620px, calc(100dvh - 100px))", border: "1px solid #8d857c", borderRadius: "12px", zIndex: "2147483000",
    colorScheme: "light dark", background: "Canvas", boxShadow: "0 8px 30px rgb(0 0 0 / .2)",
  });
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = title;
  button.setAttribute("aria-expanded", "false");
  place(button, {
    position: "fixed", right: "16px", bottom: "16px", minHeight: "44px", padding: "0 18px", border: "0", borderRadius: "22px",
    font: "600 15px system-ui, sans-serif", color: "#ffffff", background: "#8c2155", cursor: "pointer", zIndex: "2147483000",
  });

  function open(wanted) {
    // The frame asks nobody for anything before somebody wants to chat.
    if (wanted && !frame.src) frame.src = `${door}/embed/${encodeURIComponent(embed)}`;
    frame.hidden = !wanted;
    button.setAttribute("aria-expanded", String(wanted));
    (wanted ? frame : button).focus();
  }

  async function token() {
    if (!visitorUrl) return visitor ?? "";
    const answer = await fetch(visitorUrl, { credentials: "same-origin", cache: "no-store" });
    if (!answer.ok) throw new Error(`${visitorUrl} answered ${answer.status}`);
    return (await answer.text()).trim();
  }

  window.addEventListener("message", async ({ source, origin, data }) => {
    if (source !== frame.contentWindow || origin !== door) return;
    if (data?.drupe === "close") open(false);
    if (data?.drupe !== "visitor") return;
    try {
      frame.contentWindow.postMessage({ drupe: "visitor", token: await token(), title, greeting }, door);
    } catch (error) {
      console.error("drupe: no token for the visitor:", error);
    }
  });
  button.addEventListener("click", () => open(frame.hidden));
  const show = () => document.body.append(frame, button);
  if (document.body) show();
  else document.addEventListener("DOMContentLoaded", show);
})();
