/** The form of what the server computes: network, method and its options. */

/** @import { Groups } from "./types.js" */
/** @import { Settings, Store } from "./settings.js" */

import { box, button, fillMenu, input, select } from "./dom.js";
import { DEFAULT_CELLS, takesPreset, usualQuality } from "./settings.js";
import { capitalise, digits, titleOfMethod, titleOfStatistic } from "./words.js";

/** @param {Store} store */
export function setUpOptions(store) {
  fillMenus(store);
  listenToFields(store);
  showOptions(store);
  store.listen(() => showOptions(store));
}

/** @param {Store} store */
function fillMenus({ about }) {
  fillMenu(
    select("model"),
    about.models.map(({ name, classes }) => ({
      value: name,
      text: classes > 1 ? `${name} (${classes.toLocaleString("en")} classes)` : name,
    })),
  );
  box("model-field").hidden = about.models.length < 2;
  fillMenu(
    select("method"),
    about.methods.map(({ name, slow }) => ({
      value: name,
      text: titleOfMethod(name) + (slow ? " (slow)" : ""),
    })),
  );
  fillMenu(
    select("preset"),
    about.presets.map(({ name }, place) => ({
      value: place === 0 ? "" : name, // the first one is what the server takes anyway
      text: capitalise(name),
    })),
  );
  fillMenu(
    select("quality"),
    about.qualities.map(({ name, gradients }) => ({
      value: name,
      text: `${capitalise(name)}: ${gradients.toLocaleString("en")} gradients`,
    })),
  );
  fillMenu(select("statistic"), [
    { value: "", text: "By the preset" },
    ...about.statistics.map(({ name }) => ({ value: name, text: capitalise(titleOfStatistic(name)) })),
  ]);
}

/** @param {Store} store */
function listenToFields(store) {
  /** @param {string} id @param {(text: string) => Partial<Settings>} read */
  const onChange = (id, read) => {
    const field = box(id);
    field.addEventListener("change", () => {
      if (!(field instanceof HTMLInputElement || field instanceof HTMLSelectElement)) return;
      store.change(read(field.value));
      showOptions(store); // puts back what was no number
    });
  };
  onChange("model", (model) => ({ model }));
  // A share that was chosen for one kind of map means another thing in the next.
  onChange("method", (method) => ({ method, sparsity: null, share: null }));
  onChange("preset", (name) => ({ preset: name || null, noise: null, statistic: null, rho: null }));
  onChange("quality", (quality) => ({ quality }));
  onChange("noise", (text) => ({ noise: readNumber(text) }));
  onChange("statistic", (name) => ({ statistic: name || null }));
  onChange("rho", (text) => ({ rho: readNumber(text) }));
  onChange("seed", (text) => ({ seed: readWhole(text) }));
  onChange("group-kind", (kind) => ({ groups: readKind(kind), sparsity: null, share: null }));
  onChange("group-size", (text) => ({ groups: Number(text), sparsity: null, share: null }));
  input("noise").addEventListener("input", () => {
    box("noise-value").textContent = digits(Number(input("noise").value));
  });
  input("group-size").addEventListener("input", () => {
    box("group-size-value").textContent = input("group-size").value;
  });
  button("next-seed").addEventListener("click", () => store.change({ seed: (store.values.seed ?? 0) + 1 }));
  button("reset-options").addEventListener("click", () => {
    store.change({
      preset: null,
      quality: null,
      sparsity: null,
      share: null,
      noise: null,
      statistic: null,
      rho: null,
      groups: null,
      seed: null,
    });
  });
}

/**
 * Puts the settings into the fields, and shows those that the method has.
 *
 * @param {Store} store
 */
function showOptions(store) {
  const { about, values, method } = store;
  for (const field of document.querySelectorAll("[data-option]")) {
    if (!(field instanceof HTMLElement)) continue;
    const option = field.dataset.option ?? "";
    field.hidden =
      option === "preset" ? !takesPreset(method) || about.presets.length < 2 : !method.options.includes(option);
  }
  box("more-options").hidden = !["noise_level", "statistic", "rho", "seed"].some((name) =>
    method.options.includes(name),
  );
  const preset = takesPreset(method)
    ? (about.presets.find(({ name }) => name === values.preset) ?? about.presets[0])
    : undefined;

  select("model").value = values.model;
  select("method").value = values.method;
  box("method-summary").textContent = `${capitalise(method.summary)}.`;
  select("preset").value = values.preset === about.presets[0]?.name ? "" : (values.preset ?? "");
  select("quality").value = values.quality ?? usualQuality(about) ?? "";

  const usualNoise = preset?.options.noise_level;
  input("noise").value = String(values.noise ?? usualNoise ?? 0.1);
  box("noise-value").textContent =
    values.noise !== null ? digits(values.noise) : usualNoise !== undefined ? digits(usualNoise) : "the method's own";
  const statistic = values.statistic ?? "";
  const usual = preset?.options.statistic;
  const first = select("statistic").options[0];
  if (first) first.text = usual ? `By the preset: ${titleOfStatistic(usual)}` : "The method's own";
  select("statistic").value = statistic;
  const summary = about.statistics.find(({ name }) => name === (values.statistic ?? usual))?.summary;
  box("statistic-summary").textContent = summary ? `${capitalise(summary)}.` : "";
  input("rho").value = values.rho === null ? "" : String(values.rho);
  input("rho").placeholder = preset?.options.rho === undefined ? "the method's own" : String(preset.options.rho);
  input("seed").value = values.seed === null ? "" : String(values.seed);
  showGroups(values.groups ?? DEFAULT_CELLS, method.options.includes("groups"));
}

/**
 * @param {Groups} groups
 * @param {boolean} has whether the method has groups
 */
function showGroups(groups, has) {
  const cells = typeof groups === "number";
  select("group-kind").value = cells ? "cells" : groups;
  box("group-size-field").hidden = !has || !cells;
  if (cells) input("group-size").value = String(groups);
  box("group-size-value").textContent = input("group-size").value;
}

/**
 * @param {string} kind
 * @returns {Groups}
 */
function readKind(kind) {
  return kind === "superpixels" || kind === "channels" ? kind : Number(input("group-size").value);
}

/** @param {string} text */
function readNumber(text) {
  const value = Number(text);
  return text.trim() === "" || !Number.isFinite(value) || value < 0 ? null : value;
}

/** @param {string} text */
function readWhole(text) {
  const value = readNumber(text);
  return value === null ? null : Math.floor(value);
}
