/** Paints numbers as colours. */

/** @import { ColourName } from "./colours.js" */

import { colourTable, hasMiddle } from "./colours.js";

/**
 * How a map is coloured.
 *
 * @typedef {{colours: ColourName, signed: boolean}} Look
 */

/**
 * @param {HTMLCanvasElement} canvas
 * @returns {CanvasRenderingContext2D}
 */
export function pen(canvas) {
  const found = canvas.getContext("2d");
  if (!found) throw new Error("This browser cannot draw on a canvas.");
  return found;
}

/**
 * A canvas that is in no page.
 *
 * @param {number} width
 * @param {number} height
 */
export function makeCanvas(width, height) {
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  return canvas;
}

/**
 * Paints one number per pixel. The canvas gets the size of the map.
 *
 * @param {HTMLCanvasElement} canvas
 * @param {Float32Array} plane
 * @param {number} width
 * @param {number} full the size in full colour
 * @param {Look} look
 */
export function paintPlane(canvas, plane, width, full, look) {
  const height = plane.length / width;
  if (canvas.width !== width || canvas.height !== height) {
    canvas.width = width;
    canvas.height = height;
  }
  const context = pen(canvas);
  const image = context.createImageData(width, height);
  const table = colourTable(look.colours);
  // Signed maps, and colours that have a middle, put zero there.
  const centred = look.signed || hasMiddle(look.colours);
  const [origin, reach] = centred ? [127.5, 127.5] : [0, 255];
  const factor = full > 0 ? reach / full : 0;
  const bytes = image.data;
  for (let pixel = 0, byte = 0; pixel < plane.length; pixel++, byte += 4) {
    const place = origin + (plane[pixel] ?? 0) * factor;
    const colour = 3 * (place <= 0 ? 0 : place >= 255 ? 255 : Math.round(place));
    bytes[byte] = table[colour] ?? 0;
    bytes[byte + 1] = table[colour + 1] ?? 0;
    bytes[byte + 2] = table[colour + 2] ?? 0;
    bytes[byte + 3] = 255;
  }
  context.putImageData(image, 0, 0);
}

/**
 * Paints the colours from the smallest to the largest.
 *
 * @param {HTMLCanvasElement} canvas
 * @param {Look} look
 */
export function paintLegend(canvas, look) {
  const plane = new Float32Array(canvas.width);
  const low = look.signed ? -1 : 0;
  for (let place = 0; place < plane.length; place++) plane[place] = low + ((1 - low) * place) / (plane.length - 1);
  const row = makeCanvas(plane.length, 1);
  paintPlane(row, plane, plane.length, 1, look);
  pen(canvas).drawImage(row, 0, 0, canvas.width, canvas.height);
}

/**
 * A grey copy of a photo, over which colours are not mistaken for those of the photo.
 *
 * @param {ImageBitmap} photo
 * @returns {HTMLCanvasElement}
 */
export function greyCopy(photo) {
  const canvas = makeCanvas(photo.width, photo.height);
  const context = pen(canvas);
  context.drawImage(photo, 0, 0);
  const image = context.getImageData(0, 0, canvas.width, canvas.height);
  const bytes = image.data;
  for (let byte = 0; byte < bytes.length; byte += 4) {
    const grey = 0.299 * (bytes[byte] ?? 0) + 0.587 * (bytes[byte + 1] ?? 0) + 0.114 * (bytes[byte + 2] ?? 0);
    bytes[byte] = bytes[byte + 1] = bytes[byte + 2] = grey;
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

/**
 * A box around one pixel, dark and light, so that it shows on any colour.
 *
 * @param {CanvasRenderingContext2D} context
 * @param {number} left
 * @param {number} top
 * @param {number} width of the pixel on the canvas
 * @param {number} height
 */
export function drawPointer(context, left, top, width, height) {
  const least = 7 * (window.devicePixelRatio || 1);
  const wide = Math.max(width, least);
  const high = Math.max(height, least);
  const x = left + width / 2 - wide / 2;
  const y = top + height / 2 - high / 2;
  context.lineWidth = 3;
  context.strokeStyle = "#000";
  context.strokeRect(x - 1.5, y - 1.5, wide + 3, high + 3);
  context.lineWidth = 1.5;
  context.strokeStyle = "#fff";
  context.strokeRect(x - 1.5, y - 1.5, wide + 3, high + 3);
}
