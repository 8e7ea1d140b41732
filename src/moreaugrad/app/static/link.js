/** Settings as the part of the address after #, and back. A photo that was uploaded never gets into a link. */

/** @import { About, Groups } from "./types.js" */
/** @import { Settings } from "./settings.js" */

import { isColourName } from "./colours.js";
import { defaultSettings } from "./settings.js";

/**
 * @param {Settings} settings
 * @param {About} about
 * @returns {string} without the #
 */
export function writeLink(settings, about) {
  const usual = defaultSettings(about);
  const words = new URLSearchParams();
  words.set("model", settings.model);
  words.set("method", settings.method);
  if (settings.photo !== null) words.set("photo", settings.photo);
  for (const key of /** @type {const} */ ([
    "target",
    "share",
    "sparsity",
    "preset",
    "quality",
    "noise",
    "statistic",
    "rho",
    "groups",
    "seed",
  ])) {
    if (key === "target" && settings.photo === null) continue; // it was chosen for a photo that no link names
    const value = settings[key];
    if (value !== null) words.set(key, String(value));
  }
  for (const key of /** @type {const} */ (["overlay", "colours", "tab"])) {
    if (settings[key] !== usual[key]) words.set(key, String(settings[key]));
  }
  if (settings.signed) words.set("signed", "1");
  return words.toString();
}

/**
 * The address of the page with all settings, and without a token.
 *
 * @param {Settings} settings
 * @param {About} about
 */
export const addressOfPage = (settings, about) =>
  `${window.location.origin}${window.location.pathname}#${writeLink(settings, about)}`;

/**
 * The settings of a link, and what in it this server does not know. What a link leaves out is as on a fresh page.
 *
 * @param {string} hash with or without the #
 * @param {About} about
 * @returns {{settings: Settings, unknown: string[]}}
 */
export function readLink(hash, about) {
  const words = new URLSearchParams(hash.replace(/^#/, ""));
  const settings = defaultSettings(about);
  /** @type {string[]} */
  const unknown = [];

  /**
   * @template T
   * @param {string} key
   * @param {(text: string) => T | null} read null for what makes no sense
   * @param {(value: T) => void} take
   */
  function pick(key, read, take) {
    const text = words.get(key);
    if (text === null || text === "") return;
    const value = read(text);
    if (value === null) unknown.push(`${key} "${text.slice(0, 60)}"`);
    else take(value);
  }

  pick("model", among(about.models.map(({ name }) => name)), (name) => (settings.model = name));
  pick("photo", among(about.examples.map(({ id }) => id)), (id) => (settings.photo = id));
  const classes = about.models.find(({ name }) => name === settings.model)?.classes ?? 0;
  // The class of a network or a photo that is not here means nothing for the default.
  if (unknown.length === 0) pick("target", whole(0, classes - 1), (target) => (settings.target = target));
  pick("method", among(about.methods.map(({ name }) => name)), (name) => (settings.method = name));
  pick("share", between(0.001, 1), (share) => (settings.share = share));
  pick("sparsity", between(0.0001, 1), (sparsity) => (settings.sparsity = sparsity));
  pick("preset", among(about.presets.map(({ name }) => name)), (name) => (settings.preset = name));
  pick("quality", among(about.qualities.map(({ name }) => name)), (name) => (settings.quality = name));
  pick("noise", between(0, 10), (noise) => (settings.noise = noise));
  pick("statistic", among(about.statistics.map(({ name }) => name)), (name) => (settings.statistic = name));
  pick("rho", between(0, Number.MAX_VALUE), (rho) => (settings.rho = rho));
  pick("groups", readGroups, (groups) => (settings.groups = groups));
  pick("seed", whole(0, 2 ** 31 - 1), (seed) => (settings.seed = seed));
  pick("overlay", whole(0, 100), (overlay) => (settings.overlay = overlay));
  pick(
    "colours",
    (text) => (isColourName(text) ? text : null),
    (colours) => (settings.colours = colours),
  );
  pick("signed", whole(0, 1), (signed) => (settings.signed = signed === 1));
  pick("tab", among(["explain", "compare", "attack", "certificate", "about"]), (tab) => (settings.tab = tab));
  return { settings, unknown };
}

/**
 * @param {string[]} names
 * @returns {(text: string) => string | null}
 */
const among = (names) => (text) => (names.includes(text) ? text : null);

/**
 * @param {number} low
 * @param {number} high
 * @returns {(text: string) => number | null}
 */
const between = (low, high) => (text) => {
  const value = Number(text);
  return Number.isFinite(value) && value >= low && value <= high ? value : null;
};

/**
 * @param {number} low
 * @param {number} high
 * @returns {(text: string) => number | null}
 */
const whole = (low, high) => (text) => {
  const value = between(low, high)(text);
  return value !== null && Number.isInteger(value) ? value : null;
};

/**
 * @param {string} text
 * @returns {Groups | null}
 */
const readGroups = (text) => (text === "superpixels" || text === "channels" ? text : whole(2, 64)(text));
