/** Finding and making elements of the page. */

/**
 * The element with this id. A missing one is a mistake in page.html, and fails at once.
 *
 * @template {HTMLElement} T
 * @param {string} id
 * @param {new () => T} kind
 * @returns {T}
 */
export function find(id, kind) {
  const found = document.getElementById(id);
  if (!(found instanceof kind)) throw new Error(`page.html has no ${kind.name} #${id}`);
  return found;
}

/** @param {string} id */
export const button = (id) => find(id, HTMLButtonElement);
/** @param {string} id */
export const input = (id) => find(id, HTMLInputElement);
/** @param {string} id */
export const select = (id) => find(id, HTMLSelectElement);
/** @param {string} id */
export const box = (id) => find(id, HTMLElement);

/**
 * A new element with a text and a style class, added to a parent.
 *
 * @template {keyof HTMLElementTagNameMap} K
 * @param {Element} parent
 * @param {K} name
 * @param {string} [text]
 * @param {string} [style]
 * @returns {HTMLElementTagNameMap[K]}
 */
export function add(parent, name, text, style) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (style) made.className = style;
  parent.append(made);
  return made;
}

/**
 * Fills a menu and keeps what was chosen where it is still there.
 *
 * @param {HTMLSelectElement} menu
 * @param {{value: string, text: string}[]} options
 */
export function fillMenu(menu, options) {
  const before = menu.value;
  menu.replaceChildren(...options.map(({ value, text }) => new Option(text, value)));
  if (options.some(({ value }) => value === before)) menu.value = before;
}

/**
 * Calls `action` once the calls have paused for so many milliseconds.
 *
 * @param {() => void} action
 * @param {number} pause
 */
export function debounce(action, pause) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = window.setTimeout(action, pause);
  };
}

/**
 * Calls `action` at most once a frame.
 *
 * @param {() => void} action
 */
export function oncePerFrame(action) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      action();
    });
  };
}
