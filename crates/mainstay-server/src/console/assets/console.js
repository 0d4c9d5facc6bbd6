// Keys: "/" finds, "g" and then a letter goes to a view. Everything else is links, forms and htmx.
(() => {
  let awaiting = false;
  const isTyping = (element) => element.closest("input, select, textarea, [contenteditable]") !== null;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") {
      document.querySelectorAll("details.ask[open]").forEach((one) => { one.open = false; });
      return;
    }
    if (isTyping(event.target)) return;
    if (event.key === "/") {
      event.preventDefault();
      document.querySelector(".find input")?.focus();
    } else if (awaiting) {
      awaiting = false;
      document.querySelector(`nav.places a[data-key="${CSS.escape(event.key)}"]`)?.click();
    } else if (event.key === "g") {
      awaiting = true;
      setTimeout(() => { awaiting = false; }, 1500);
    }
  });

  // One question at a time: opening another closes the first.
  document.addEventListener("toggle", (event) => {
    if (!event.target.matches?.("details.ask") || !event.target.open) return;
    document.querySelectorAll("details.ask[open]").forEach((one) => { if (one !== event.target) one.open = false; });
    event.target.querySelector("input[type=text], button")?.focus();
  }, true);

  const pulse = () => document.getElementById("pulse");
  document.addEventListener("htmx:sse:after:connection", () => pulse()?.classList.remove("lost"));
  document.addEventListener("htmx:sse:error", () => pulse()?.classList.add("lost"));
  // The session has ended.
  document.addEventListener("over", () => location.reload());
})();
