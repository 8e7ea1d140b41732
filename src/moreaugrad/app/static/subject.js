/** What is explained: the photo, as the network sees it, and the class. All tabs speak about the same. */

/** @import { ExplainResult, UploadedPhoto } from "./types.js" */
/** @import { Store } from "./settings.js" */

import { nameClass } from "./words.js";

export class Subject {
  /** @type {(UploadedPhoto & {name: string}) | null} the user's own photo, instead of an example */
  upload = null;
  /** @type {ImageBitmap | null} */
  crop = null;
  /** @type {ExplainResult | null} the last map of this photo and network */
  result = null;
  /** @type {Set<() => void>} */
  #listeners = new Set();
  /** @type {Set<() => void>} */
  #renewals = new Set();

  /** @param {Store} store */
  constructor(store) {
    this.store = store;
  }

  /** @param {() => void} listener */
  listen(listener) {
    this.#listeners.add(listener);
  }

  changed() {
    for (const listener of this.#listeners) listener();
  }

  /**
   * Hears when another photo or network makes everything that was found out of date.
   *
   * @param {() => void} listener
   */
  listenToRenewal(listener) {
    this.#renewals.add(listener);
  }

  renew() {
    this.crop = null;
    this.result = null;
    for (const listener of this.#renewals) listener();
  }

  /** The id of the photo; null where there is neither an example nor an upload. */
  get photo() {
    return this.upload?.id ?? this.store.values.photo;
  }

  get photoName() {
    if (this.upload) return this.upload.name;
    return this.store.about.examples.find(({ id }) => id === this.photo)?.name ?? "no photo";
  }

  /** The class that is explained: the chosen one, else the predicted one once it is known. */
  get target() {
    return this.store.values.target ?? this.result?.target ?? null;
  }

  get sentence() {
    if (this.photo === null) return "Choose a photo first.";
    const { result } = this;
    const known = result && (this.store.values.target === null || this.store.values.target === result.target);
    const name = known ? nameClass(result.label, result.target) : this.target === null ? null : `class ${this.target}`;
    return `Now: ${this.photoName}, ${name === null ? "the predicted class" : name}.`;
  }
}
