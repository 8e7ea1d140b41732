/**
 * Saliency maps as numbers: reads the server's file, and cuts a map at any share of its entries.
 *
 * A soft threshold of a soft threshold is one too, so a map that is sparse already can be cut further without its dense
 * form. What orders the entries is computed once for a map, so that a move of the slider is one pass over them.
 */

/** @import { Groups, Preview } from "./types.js" */

/**
 * `exact` is the map that the server solved; `dense` the same before the threshold of its prior, where there is one.
 *
 * @typedef {{channels: number, height: number, width: number, sparse: boolean, exact: Float32Array,
 *   dense: Float32Array | null}} MapFile
 * @typedef {{channels: number, height: number, width: number, sparse: boolean, entries: number,
 *   dense_scale: number | null}} Header
 *
 * A map as it is shown at some share. `solved` says that it is the server's own, not a threshold of it.
 * @typedef {{values: Float32Array, solved: boolean, kept: number}} Shown
 */

const MAGIC = "MGM1";
const MOST = 32767; // the int16 that stands for dense_scale

/**
 * @param {ArrayBuffer} bytes
 * @returns {MapFile}
 */
export function decodeMap(bytes) {
  const view = new DataView(bytes);
  const magic = bytes.byteLength >= 8 ? String.fromCharCode(...new Uint8Array(bytes, 0, 4)) : "";
  if (magic !== MAGIC) throw new Error("The server sent a map that this page cannot read.");
  const length = view.getUint32(4, true);
  const header = /** @type {Header} */ (JSON.parse(new TextDecoder().decode(new Uint8Array(bytes, 8, length))));
  const { channels, height, width, entries } = header;
  const size = channels * height * width;
  let place = 8 + length;
  const exact = new Float32Array(size);
  if (header.sparse) {
    const indices = new Int32Array(bytes, place, entries);
    const values = new Float32Array(bytes, place + 4 * entries, entries);
    for (let entry = 0; entry < entries; entry++) exact[indices[entry] ?? 0] = values[entry] ?? 0;
    place += 8 * entries;
  } else {
    exact.set(new Float32Array(bytes, place, size));
    place += 4 * size;
  }
  const dense = header.dense_scale === null ? null : new Float32Array(size);
  if (dense && header.dense_scale !== null) {
    const scale = header.dense_scale / MOST;
    const steps = new Int16Array(bytes, place, size);
    for (let entry = 0; entry < size; entry++) dense[entry] = (steps[entry] ?? 0) * scale;
  }
  return { channels, height, width, sparse: header.sparse, exact, dense };
}

/** A map that can be shown at any share. */
export class SaliencyMap {
  /** @type {Float32Array} what the thresholds are applied to */
  #source;
  /** @type {Float32Array} the result, used again by every move of the slider */
  #cut;
  /** @type {Float32Array} sizes of the units (entries or groups), ascending */
  #ordered;
  /** @type {Int32Array | null} the group of each entry */
  #groups = null;
  /** @type {Float32Array | null} the norm of each group */
  #norms = null;

  /**
   * @param {MapFile} file
   * @param {number | null} solvedShare the share that the server was asked for
   * @param {Groups | null} groups the groups that the prior keeps or drops, null for single entries
   */
  constructor(file, solvedShare, groups) {
    this.channels = file.channels;
    this.height = file.height;
    this.width = file.width;
    this.exact = file.exact;
    this.#source = file.dense ?? file.exact;
    this.#cut = new Float32Array(this.#source.length);
    /** Whether the map is that of a prior, which can be solved for another share. */
    this.canSolve = file.dense !== null || solvedShare !== null;
    /** The share at which the map is the server's own. */
    this.solvedShare = this.canSolve ? (solvedShare ?? shareOf(file.exact)) : 1;
    /**
     * The largest share that a threshold can show. What the prior set to zero is known from the dense map alone; where
     * only the server knows the groups, nothing can be cut.
     */
    this.mostShare = groups === "superpixels" && this.canSolve ? 0 : file.dense ? 1 : this.solvedShare;
    if (this.canSolve && groups !== null && groups !== "superpixels") {
      this.#groups = labelEntries(file, groups);
      this.#norms = measureGroups(this.#source, this.#groups);
      this.#ordered = this.#norms.slice().sort();
    } else {
      this.#ordered = this.#source.map(Math.abs).sort();
    }
  }

  /**
   * Whether a share is the one that the server solved, as far as a slider can tell.
   *
   * @param {number} share
   */
  isSolved(share) {
    return Math.abs(Math.log10(share / this.solvedShare)) < 0.006;
  }

  /** @param {number} share */
  canCut(share) {
    return this.isSolved(share) || share <= this.mostShare;
  }

  /**
   * @param {number | null} share null for the map as it was solved
   * @returns {Shown}
   */
  show(share) {
    if (share === null || this.isSolved(share) || !this.canCut(share)) {
      return { values: this.exact, solved: true, kept: shareOf(this.exact) };
    }
    const threshold = this.#threshold(share);
    const kept =
      this.#groups && this.#norms ? this.#cutGroups(this.#groups, this.#norms, threshold) : this.#cutEntries(threshold);
    return { values: this.#cut, solved: false, kept: kept / this.#source.length };
  }

  /**
   * The size that just so many units exceed (fewer where some are equal).
   *
   * @param {number} share
   */
  #threshold(share) {
    const units = this.#ordered.length;
    const kept = Math.max(1, Math.round(share * units));
    return kept >= units ? 0 : (this.#ordered[units - kept - 1] ?? 0);
  }

  /** @param {number} threshold */
  #cutEntries(threshold) {
    const [source, cut] = [this.#source, this.#cut];
    let kept = 0;
    for (let entry = 0; entry < source.length; entry++) {
      const value = source[entry] ?? 0;
      const left = Math.abs(value) - threshold;
      cut[entry] = left <= 0 ? 0 : value > 0 ? left : -left;
      if (left > 0) kept++;
    }
    return kept;
  }

  /**
   * @param {Int32Array} groups
   * @param {Float32Array} norms
   * @param {number} threshold
   */
  #cutGroups(groups, norms, threshold) {
    const [source, cut] = [this.#source, this.#cut];
    const factors = norms.map((norm) => (norm > threshold ? 1 - threshold / norm : 0));
    let kept = 0;
    for (let entry = 0; entry < source.length; entry++) {
      const value = (source[entry] ?? 0) * (factors[groups[entry] ?? 0] ?? 0);
      cut[entry] = value;
      if (value !== 0) kept++;
    }
    return kept;
  }
}

/** The share of entries that are not zero. @param {Float32Array} values */
function shareOf(values) {
  let kept = 0;
  for (const value of values) if (value !== 0) kept++;
  return kept / values.length;
}

/**
 * The group of each entry: the cell of its pixel, or its channel. The server divides uneven sides in the same way.
 *
 * @param {MapFile} file
 * @param {number | "channels"} groups
 */
function labelEntries({ channels, height, width }, groups) {
  const labels = new Int32Array(channels * height * width);
  let entry = 0;
  for (let channel = 0; channel < channels; channel++) {
    for (let row = 0; row < height; row++) {
      const down = groups === "channels" ? 0 : Math.floor((row * Math.min(groups, height)) / height);
      for (let column = 0; column < width; column++, entry++) {
        if (groups === "channels") labels[entry] = channel;
        else labels[entry] = down * Math.min(groups, width) + Math.floor((column * Math.min(groups, width)) / width);
      }
    }
  }
  return labels;
}

/**
 * @param {Float32Array} values
 * @param {Int32Array} groups
 */
function measureGroups(values, groups) {
  let last = 0;
  for (const group of groups) last = Math.max(last, group);
  const squares = new Float64Array(last + 1);
  for (let entry = 0; entry < values.length; entry++) {
    const group = groups[entry] ?? 0;
    squares[group] = (squares[group] ?? 0) + (values[entry] ?? 0) ** 2;
  }
  return Float32Array.from(squares, Math.sqrt);
}

/**
 * One number per pixel: the sum of its channels, or of their sizes.
 *
 * @param {Float32Array} values
 * @param {number} pixels
 * @param {boolean} signed
 * @param {Float32Array} [plane] filled where given
 * @returns {Float32Array}
 */
export function sumChannels(values, pixels, signed, plane = new Float32Array(pixels)) {
  plane.fill(0);
  for (let start = 0; start < values.length; start += pixels) {
    for (let pixel = 0; pixel < pixels; pixel++) {
      const value = values[start + pixel] ?? 0;
      plane[pixel] = (plane[pixel] ?? 0) + (signed ? value : Math.abs(value));
    }
  }
  return plane;
}

/**
 * The size that is drawn in full colour: the 99th percentile of all pixels, or the 90th of those that are not zero
 * where that is larger. A few extreme pixels would otherwise leave all others dark.
 *
 * @param {...Float32Array} planes several share one scale
 * @returns {number} 0 for maps of zeros
 */
export function fullColour(...planes) {
  let [count, pixels] = [0, 0];
  for (const plane of planes) {
    pixels += plane.length;
    for (const value of plane) if (value !== 0) count++;
  }
  if (count === 0) return 0;
  const sizes = new Float32Array(count);
  let place = 0;
  for (const plane of planes) {
    for (const value of plane) if (value !== 0) sizes[place++] = Math.abs(value);
  }
  sizes.sort();
  const fromTop = Math.min(Math.floor(0.01 * pixels), count - 1); // zeros come first in the order of all pixels
  return Math.max(sizes[count - 1 - fromTop] ?? 0, sizes[Math.floor(0.9 * (count - 1))] ?? 0);
}

/**
 * A preview as one number per pixel, from 0 to 1.
 *
 * @param {Preview} preview
 * @returns {Float32Array}
 */
export function decodePreview(preview) {
  const bytes = atob(preview.values);
  const plane = new Float32Array(preview.height * preview.width);
  for (let pixel = 0; pixel < plane.length; pixel++) plane[pixel] = bytes.charCodeAt(pixel) / 255;
  return plane;
}
