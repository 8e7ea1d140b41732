/** Copies text, also on pages that were not opened by https or from this machine. */

/** @param {string} text */
export async function copyText(text) {
  if (navigator.clipboard) {
    try {
      await navigator.clipboard.writeText(text);
      return;
    } catch {
      // the user or the browser said no; the older way may still work
    }
  }
  const field = document.createElement("textarea");
  field.value = text;
  field.className = "unseen";
  field.setAttribute("aria-hidden", "true");
  const before = document.activeElement;
  document.body.append(field);
  field.select();
  const copied = document.execCommand("copy");
  field.remove();
  if (before instanceof HTMLElement) before.focus();
  if (!copied) throw new Error("The browser does not let this page copy. Select the text and copy it by hand.");
}
