/** Colour maps: a few control points each, and the 256 colours between them. */

/** @typedef {"inferno" | "viridis" | "grey" | "red-blue"} ColourName */

/** @type {Readonly<Record<ColourName, readonly number[]>>} 0xrrggbb at equal steps from 0 to 1 */
const POINTS = {
  inferno: [
    0x000004, 0x160b39, 0x420a68, 0x6a176e, 0x932667, 0xbc3754, 0xdd513a, 0xf37819, 0xfca50a, 0xf6d746, 0xfcffa4,
  ],
  viridis: [
    0x440154, 0x482475, 0x414487, 0x355f8d, 0x2a788e, 0x21918c, 0x22a884, 0x44bf70, 0x7ad151, 0xbddf26, 0xfde725,
  ],
  grey: [0x000000, 0xffffff],
  // Blue against the class, red for it, nearly white for zero in the middle.
  "red-blue": [
    0x053061, 0x2166ac, 0x4393c3, 0x92c5de, 0xd1e5f0, 0xf7f7f7, 0xfddbc7, 0xf4a582, 0xd6604d, 0xb2182b, 0x67001f,
  ],
};

const COLOURS = 256;

/** @type {Map<ColourName, Uint8Array>} */
const tables = new Map();

/**
 * @param {string} name
 * @returns {name is ColourName}
 */
export const isColourName = (name) => Object.hasOwn(POINTS, name);

/** Whether a colour map has its zero in the middle. @param {ColourName} name */
export const hasMiddle = (name) => name === "red-blue";

/**
 * 256 colours, three bytes each.
 *
 * @param {ColourName} name
 * @returns {Uint8Array}
 */
export function colourTable(name) {
  let table = tables.get(name);
  if (!table) {
    table = interpolate(POINTS[name]);
    tables.set(name, table);
  }
  return table;
}

/** @param {readonly number[]} points */
function interpolate(points) {
  const table = new Uint8Array(3 * COLOURS);
  for (let colour = 0; colour < COLOURS; colour++) {
    const place = (colour / (COLOURS - 1)) * (points.length - 1);
    const before = Math.min(Math.floor(place), points.length - 2);
    const low = points[before] ?? 0;
    const high = points[before + 1] ?? 0;
    for (let part = 0; part < 3; part++) {
      const shift = 16 - 8 * part;
      const [from, to] = [(low >> shift) & 255, (high >> shift) & 255];
      table[3 * colour + part] = Math.round(from + (to - from) * (place - before));
    }
  }
  return table;
}
