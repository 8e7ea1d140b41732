/** Choosing the class: the most likely ones as buttons, any other one by a search. */

/** @import { TopClass } from "./types.js" */
/** @import { Store } from "./settings.js" */

import { fetchClasses } from "./api.js";
import { add, box, input } from "./dom.js";
import { guarded } from "./notice.js";
import { nameClass, percent, thousands } from "./words.js";

const MOST = 50;

export class ClassChooser {
  /** @type {TopClass[]} */
  #top = [];
  /** @type {TopClass | null} a chosen class that is not among them */
  #other = null;
  /** @type {number | null} */
  #explained = null;
  #search;

  /** @param {Store} store */
  constructor(store) {
    this.store = store;
    this.#search = new ClassSearch(store, (target) => store.change({ target }));
    this.showModel();
  }

  /** A network with one output has no classes to choose from. */
  showModel() {
    box("class-card").hidden = this.store.model.classes <= 1;
    this.#search.reset();
    this.clear();
  }

  clear() {
    this.#top = [];
    this.#other = null;
    this.#explained = null;
    this.#show();
  }

  /** @param {TopClass[]} top */
  setTop(top) {
    this.#top = top;
    this.#show();
  }

  /**
   * The class that the map explains.
   *
   * @param {number | null} target
   * @param {string | null} [label]
   */
  setExplained(target, label) {
    this.#explained = target;
    const listed = this.#top.some((each) => each.target === target);
    if (target === null || listed) this.#other = null;
    else this.#other = { target, label: label ?? this.#search.nameOf(target), probability: null };
    this.#show();
  }

  /** Keeps the buttons that are still right, for one of them may have the focus. */
  #show() {
    const group = box("classes");
    const rows = this.#other ? [...this.#top, this.#other] : this.#top;
    const buttons = /** @type {HTMLButtonElement[]} */ ([...group.children]);
    for (const extra of buttons.splice(rows.length)) extra.remove();
    rows.forEach((row, number) => {
      const choice = buttons[number] ?? this.#makeButton(group);
      choice.dataset.target = String(row.target);
      choice.setAttribute("aria-pressed", String(row.target === this.#explained));
      const [bar, name, share] = /** @type {HTMLElement[]} */ ([...choice.children]);
      if (!bar || !name || !share) return;
      bar.style.width = `${100 * (row.probability ?? 0)}%`;
      name.textContent = nameClass(row.label, row.target);
      share.textContent = row.probability === null ? "" : percent(row.probability);
    });
  }

  /** @param {Element} group */
  #makeButton(group) {
    const choice = add(group, "button", undefined, "class");
    choice.type = "button";
    add(choice, "i").setAttribute("aria-hidden", "true");
    add(choice, "span");
    add(choice, "span", undefined, "number");
    choice.addEventListener("click", () => this.store.change({ target: Number(choice.dataset.target) }));
    return choice;
  }
}

/** A search over all classes, by name or number. */
class ClassSearch {
  /** @type {(string | null)[] | null} */
  #names = null;
  /** @type {string[]} the same in small letters, made once */
  #small = [];
  /** @type {Promise<void> | null} */
  #loading = null;
  #active = -1;
  #field = input("class-search");
  #list = box("class-found");

  /**
   * @param {Store} store
   * @param {(target: number) => void} choose
   */
  constructor(store, choose) {
    this.store = store;
    this.choose = choose;
    this.#field.addEventListener(
      "focus",
      guarded(() => this.#load()),
    );
    this.#field.addEventListener(
      "input",
      guarded(async () => {
        await this.#load();
        this.#find();
      }),
    );
    this.#field.addEventListener("keydown", (event) => this.#key(event));
    this.#field.addEventListener("blur", () => this.#close());
    this.#list.addEventListener("pointerdown", (event) => event.preventDefault()); // the field keeps the focus
    this.#list.addEventListener("click", (event) => {
      const option = event.target instanceof Element ? event.target.closest("[data-target]") : null;
      if (option instanceof HTMLElement) this.#take(option);
    });
  }

  reset() {
    this.#names = null;
    this.#small = [];
    this.#loading = null;
    this.#field.value = "";
    this.#close();
  }

  /** @param {number} target */
  nameOf(target) {
    return this.#names?.[target] ?? null;
  }

  /** The names are many, so they are asked for only once somebody searches. */
  async #load() {
    const model = this.store.model;
    this.#loading ??= fetchClasses(model.name).then((names) => {
      if (model.name !== this.store.values.model) return;
      this.#names = names;
      this.#small = Array.from({ length: model.classes }, (_, number) =>
        nameClass(names?.[number], number).toLowerCase(),
      );
    });
    const loading = this.#loading;
    try {
      await loading;
    } catch (problem) {
      if (this.#loading === loading) this.#loading = null; // the next key tries again
      throw problem;
    }
  }

  #find() {
    const words = this.#field.value.trim().toLowerCase();
    if (words === "") return this.#close();
    /** @type {number[]} */
    const starting = [];
    /** @type {number[]} */
    const containing = [];
    const number = /^\d+$/.test(words) ? Number(words) : -1;
    this.#small.forEach((name, target) => {
      if (target === number) starting.unshift(target);
      else if (name.startsWith(words)) starting.push(target);
      else if (name.includes(words)) containing.push(target);
    });
    const found = [...starting, ...containing];
    this.#list.replaceChildren();
    for (const target of found.slice(0, MOST)) {
      const option = add(this.#list, "li");
      option.id = `class-option-${target}`;
      option.setAttribute("role", "option");
      option.setAttribute("aria-selected", "false");
      option.dataset.target = String(target);
      add(option, "span", nameClass(this.#names?.[target], target));
      add(option, "span", String(target), "number");
    }
    this.#open(found.length > 0);
    this.#activate(found.length > 0 ? 0 : -1);
    box("class-count").textContent =
      found.length === 0
        ? "No class has this name."
        : found.length > MOST
          ? `The first ${MOST} of ${thousands(found.length)}; type more to narrow them down.`
          : `${thousands(found.length)} found.`;
  }

  /** @param {boolean} open */
  #open(open) {
    this.#list.hidden = !open;
    this.#field.setAttribute("aria-expanded", String(open));
    if (!open) this.#field.removeAttribute("aria-activedescendant");
  }

  #close() {
    this.#open(false);
    box("class-count").textContent = "";
  }

  /** @param {number} place */
  #activate(place) {
    const options = this.#list.children;
    options[this.#active]?.setAttribute("aria-selected", "false");
    this.#active = place;
    const option = options[place];
    if (!option) return;
    option.setAttribute("aria-selected", "true");
    this.#field.setAttribute("aria-activedescendant", option.id);
    option.scrollIntoView({ block: "nearest" });
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const count = this.#list.hidden ? 0 : this.#list.children.length;
    if (event.key === "Escape" && count > 0) this.#close();
    else if (count === 0) return;
    else if (event.key === "ArrowDown") this.#activate((this.#active + 1) % count);
    else if (event.key === "ArrowUp") this.#activate((this.#active + count - 1) % count);
    else if (event.key === "Enter") {
      const option = this.#list.children[this.#active];
      if (option instanceof HTMLElement) this.#take(option);
    } else return;
    event.preventDefault();
  }

  /** @param {HTMLElement} option */
  #take(option) {
    this.#field.value = "";
    this.#close();
    this.choose(Number(option.dataset.target));
  }
}
