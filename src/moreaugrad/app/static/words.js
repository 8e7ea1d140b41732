/** Numbers and names as people read them. */

/** @type {Readonly<Record<string, string>>} */
const TITLES = {
  sparse_moreau: "Sparse MoreauGrad",
  group_sparse_moreau: "Group-sparse MoreauGrad",
  moreau: "MoreauGrad",
  gradient: "Simple gradient",
  smoothgrad: "SmoothGrad",
  sparsified_smoothgrad: "Sparsified SmoothGrad",
  integrated_gradients: "Integrated gradients",
  deeplift: "DeepLIFT",
  cam: "CAM",
  gradcam: "Grad-CAM",
  gradcam_plus_plus: "Grad-CAM++",
  normgrad: "NormGrad",
  relex: "RelEx",
  fgvis: "FGVis",
  meaningful_perturbation: "Meaningful perturbation",
  mask_network: "Mask network",
};

/** @type {Readonly<Record<string, string>>} */
const STATISTICS = {
  mean: "mean",
  rms: "root mean square",
  votes: "votes",
  geometric: "geometric mean",
  square: "mean square",
};

/** @param {string} name */
export const titleOfMethod = (name) => TITLES[name] ?? capitalise(name.replaceAll("_", " "));

/** @param {string} name */
export const titleOfStatistic = (name) => STATISTICS[name] ?? name.replaceAll("_", " ");

/** @param {string} text */
export const capitalise = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/**
 * The name of a class, or its number where it has none. A network with one output has no classes.
 *
 * @param {string | null | undefined} label
 * @param {number | null} target
 */
export const nameClass = (label, target) => label || (target === null ? "the output" : `class ${target}`);

/**
 * Why something cannot be done with a network, or nothing where it can.
 *
 * @param {{classes: number}} model
 * @param {string} what
 */
export const tellOneOutput = ({ classes }, what) =>
  classes > 1 ? "" : `${what} need a network with classes; this one has a single output.`;

/**
 * What a result cost; some methods do not count their gradients.
 *
 * @param {{gradients: number | null, seconds: number}} result
 */
export function tellCost({ gradients, seconds }) {
  return gradients === null ? duration(seconds) : `${counted(gradients, "gradient")}, ${duration(seconds)}`;
}

/**
 * Three significant digits: 0.0123, 4.56, 789, 1.2e-7.
 *
 * @param {number} value
 */
export function digits(value) {
  if (!Number.isFinite(value)) return "unknown";
  if (value === 0) return "0";
  const size = Math.abs(value);
  const text = size < 1e-4 || size >= 1e6 ? value.toExponential(2) : String(Number(value.toPrecision(3)));
  return text.replace("-", "\u2212");
}

/** @param {number} share */
export function percent(share) {
  const value = 100 * share;
  return `${value >= 10 ? value.toFixed(0) : value >= 1 ? value.toFixed(1) : value.toFixed(2)} %`;
}

/** @param {number} seconds */
export function duration(seconds) {
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
}

/** @param {number} count */
export const thousands = (count) => count.toLocaleString("en");

/**
 * @param {number} count
 * @param {string} one
 * @param {string} [many]
 */
export const counted = (count, one, many = `${one}s`) => `${thousands(count)} ${count === 1 ? one : many}`;

/**
 * The names of the channels of a photo.
 *
 * @param {number} channels
 */
export function nameChannels(channels) {
  if (channels === 3) return ["red", "green", "blue"];
  if (channels === 1) return ["value"];
  return Array.from({ length: channels }, (_, number) => `channel ${number + 1}`);
}
