/** The settings of the page: what a link carries. Everybody reads them here and hears when they change. */

/** @import { About, Groups, JobOptions, Method, Model } from "./types.js" */
/** @import { ColourName } from "./colours.js" */

/**
 * Null stands for what the user did not change.
 *
 * @typedef {{model: string, method: string, photo: string | null, target: number | null, share: number | null,
 *   sparsity: number | null, preset: string | null, quality: string | null, noise: number | null,
 *   statistic: string | null, rho: number | null, groups: Groups | null, seed: number | null, overlay: number,
 *   colours: ColourName, signed: boolean, tab: string}} Settings
 */

/** Cells per side where the user did not choose; the server takes the same. */
export const DEFAULT_CELLS = 16;

/** The settings in which a page opens. */
export class Store {
  /** @type {Set<(changed: Set<keyof Settings>) => void>} */
  #listeners = new Set();

  /** @param {About} about */
  constructor(about) {
    this.about = about;
    this.values = defaultSettings(about);
  }

  /** @param {(changed: Set<keyof Settings>) => void} listener */
  listen(listener) {
    this.#listeners.add(listener);
  }

  /**
   * Changes some settings and tells everybody which ones differ now.
   *
   * @param {Partial<Settings>} some
   */
  change(some) {
    const next = { ...this.values, ...some };
    if (next.model !== this.values.model && !("target" in some)) next.target = null; // other networks number otherwise
    const changed = /** @type {Set<keyof Settings>} */ (new Set());
    for (const key of /** @type {(keyof Settings)[]} */ (Object.keys(next))) {
      if (next[key] !== this.values[key]) changed.add(key);
    }
    if (changed.size === 0) return;
    this.values = next;
    for (const listener of this.#listeners) listener(changed);
  }

  /** @returns {Model} */
  get model() {
    return findNamed(this.about.models, this.values.model);
  }

  /** @returns {Method} */
  get method() {
    return findNamed(this.about.methods, this.values.method);
  }
}

/**
 * @template {{name: string}} T
 * @param {T[]} rows
 * @param {string} name
 * @returns {T}
 */
export function findNamed(rows, name) {
  const found = rows.find((row) => row.name === name);
  if (!found) throw new Error(`This server has no ${name}.`);
  return found;
}

/**
 * @param {About} about
 * @returns {Settings}
 */
export function defaultSettings(about) {
  const [model] = about.models;
  const [method] = about.methods;
  if (!model) throw new Error("This server has no network to explain.");
  if (!method) throw new Error("This server has no method.");
  return {
    model: model.name,
    method: method.name,
    photo: about.examples[0]?.id ?? null,
    target: null,
    share: null,
    sparsity: null,
    preset: null,
    quality: null,
    noise: null,
    statistic: null,
    rho: null,
    groups: null,
    seed: null,
    overlay: 70,
    colours: "inferno",
    signed: false,
    tab: "explain",
  };
}

/**
 * The quality where the user chose none.
 *
 * @param {About} about
 * @returns {string | null}
 */
export function usualQuality({ qualities }) {
  return (qualities.find((each) => each.default) ?? qualities[0])?.name ?? null;
}

/** The settings that a job of the server depends on; the others change the drawing only. */
export const SOLVED = /** @type {const} */ ([
  "model",
  "method",
  "photo",
  "target",
  "sparsity",
  "preset",
  "quality",
  "noise",
  "statistic",
  "rho",
  "groups",
  "seed",
]);

/**
 * Whether a preset means something to this method: it sets the radius.
 *
 * @param {Method} method
 */
export const takesPreset = (method) => method.options.includes("preset") || method.options.includes("rho");

/**
 * The options of a job: those that the method has and the user changed.
 *
 * @param {About} about
 * @param {Settings} settings
 * @param {Method} method
 * @returns {JobOptions}
 */
export function optionsOf(about, settings, method) {
  /** @type {JobOptions} */
  const options = {};
  /** @param {string} name */
  const has = (name) => method.options.includes(name);
  if (settings.preset !== null && takesPreset(method)) {
    if (has("preset")) options.preset = settings.preset;
    else takePreset(options, findNamed(about.presets, settings.preset).options, method);
  }
  const quality = settings.quality ?? usualQuality(about);
  // Where the server does not say which quality it takes by itself, it is told, so that the menu shows the truth.
  const told = settings.quality !== null || !about.qualities.some((each) => each.default);
  if (has("quality") && quality !== null && told) options.quality = quality;
  if (has("sparsity") && settings.sparsity !== null) options.sparsity = settings.sparsity;
  if (has("noise_level") && settings.noise !== null) options.noise_level = settings.noise;
  if (has("statistic") && settings.statistic !== null) options.statistic = settings.statistic;
  if (has("rho") && settings.rho !== null) options.rho = settings.rho;
  if (has("groups") && settings.groups !== null) options.groups = settings.groups;
  if (has("seed") && settings.seed !== null) options.seed = settings.seed;
  return options;
}

/**
 * What a preset stands for, for methods that have its options but not its name.
 *
 * @param {JobOptions} options
 * @param {{rho?: number, noise_level?: number, statistic?: string}} preset
 * @param {Method} method
 */
function takePreset(options, preset, method) {
  if (preset.rho !== undefined && method.options.includes("rho")) options.rho = preset.rho;
  if (preset.noise_level !== undefined && method.options.includes("noise_level"))
    options.noise_level = preset.noise_level;
  if (preset.statistic !== undefined && method.options.includes("statistic")) options.statistic = preset.statistic;
}
