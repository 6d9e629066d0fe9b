// Sets the theme that was chosen before anything is painted. It runs before the body, so it is no module.
(() => {
  let kept = null;
  try {
    kept = localStorage.getItem("theme");
  } catch {
    // A browser that keeps nothing shows what the system says.
  }
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
})();
