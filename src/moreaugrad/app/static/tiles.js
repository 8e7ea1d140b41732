/** Pictures side by side under one pointer: where it stands in one, it stands in all; each tells its value. */

import { add, oncePerFrame } from "./dom.js";
import { drawPointer, pen } from "./draw.js";

/**
 * @typedef {{x: number, y: number}} Spot from 0 to 1
 * @typedef {{row: number, column: number}} Place
 */

/** One tile: a title, some lines, a picture and the value under the pointer. */
export class Tile {
  /** @type {HTMLCanvasElement | ImageBitmap | null} */
  picture = null;
  /** @type {(place: Place) => string} */
  read = () => "";
  failed = false;

  /**
   * @param {Element} parent
   * @param {string} title
   * @param {TileGroup} group
   */
  constructor(parent, title, group) {
    this.root = add(parent, "article", undefined, "tile");
    add(this.root, "h3", title);
    this.canvas = add(this.root, "canvas");
    this.canvas.width = 224;
    this.canvas.height = 224;
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "application");
    this.canvas.setAttribute("aria-label", `${title}: arrow keys move the pointer in all pictures`);
    this.value = add(this.root, "output", "\u00a0", "value");
    this.value.setAttribute("aria-live", "off");
    this.lines = add(this.root, "div", undefined, "lines");
    this.group = group;
  }

  /** @param {HTMLCanvasElement | ImageBitmap | null} picture */
  show(picture) {
    this.picture = picture;
    if (picture) {
      this.canvas.width = Math.max(picture.width, 320);
      this.canvas.height = Math.round((this.canvas.width * picture.height) / picture.width);
    }
    this.group.draw();
  }

  /**
   * Replaces the lines below the picture.
   *
   * @param {...string} texts
   */
  say(...texts) {
    this.lines.replaceChildren();
    for (const text of texts) if (text) add(this.lines, "p", text);
  }

  /** @param {string} sentence */
  fail(sentence) {
    this.failed = true;
    this.lines.replaceChildren();
    add(this.lines, "p", sentence, "bad");
  }

  /**
   * @param {Spot} spot
   * @returns {Place | null}
   */
  placeOf(spot) {
    if (!this.picture) return null;
    const { width, height } = this.picture;
    return {
      row: Math.min(height - 1, Math.floor(spot.y * height)),
      column: Math.min(width - 1, Math.floor(spot.x * width)),
    };
  }
}

export class TileGroup {
  /** @type {Tile[]} */
  #tiles = [];
  /** @type {Spot | null} */
  #spot = null;
  draw = oncePerFrame(() => this.#paint());

  /** @param {HTMLElement} root */
  constructor(root) {
    this.root = root;
  }

  clear() {
    this.#tiles = [];
    this.root.replaceChildren();
  }

  /**
   * @param {string} title
   * @returns {Tile}
   */
  add(title) {
    const tile = new Tile(this.root, title, this);
    this.#tiles.push(tile);
    const { canvas } = tile;
    for (const name of /** @type {const} */ (["pointerdown", "pointermove"])) {
      canvas.addEventListener(name, (event) => {
        const frame = canvas.getBoundingClientRect();
        this.#point({ x: (event.clientX - frame.left) / frame.width, y: (event.clientY - frame.top) / frame.height });
      });
    }
    canvas.addEventListener("pointerleave", ({ pointerType }) => {
      if (pointerType !== "touch") this.#point(null); // what a finger has shown stays when it is lifted
    });
    canvas.addEventListener("blur", ({ relatedTarget }) => {
      tile.value.setAttribute("aria-live", "off");
      // From one tile to the next the pointer stays, for it stands in all of them.
      if (!(relatedTarget instanceof Node && this.root.contains(relatedTarget))) this.#point(null);
    });
    canvas.addEventListener("keydown", (event) => this.#key(event, tile));
    return tile;
  }

  /** @param {Spot | null} spot */
  #point(spot) {
    const inside = spot && spot.x >= 0 && spot.y >= 0 && spot.x < 1 && spot.y < 1;
    this.#spot = inside ? spot : null;
    this.draw();
  }

  /**
   * @param {KeyboardEvent} event
   * @param {Tile} tile
   */
  #key(event, tile) {
    if (event.ctrlKey || event.metaKey || event.altKey || !tile.picture) return;
    const steps = /** @type {Record<string, [number, number]>} */ ({
      ArrowUp: [0, -1],
      ArrowDown: [0, 1],
      ArrowLeft: [-1, 0],
      ArrowRight: [1, 0],
    })[event.key];
    if (!steps) return;
    event.preventDefault();
    tile.value.setAttribute("aria-live", "polite");
    const { width, height } = tile.picture;
    const far = event.shiftKey ? 10 : 1;
    const from = this.#spot ?? { x: 0.5, y: 0.5 };
    /** @param {number} at @param {number} size @param {number} step */
    const shift = (at, size, step) =>
      (Math.min(size - 1, Math.max(0, Math.floor(at * size) + far * step)) + 0.5) / size;
    this.#point({ x: shift(from.x, width, steps[0]), y: shift(from.y, height, steps[1]) });
  }

  #paint() {
    for (const tile of this.#tiles) {
      const { canvas, picture } = tile;
      const context = pen(canvas);
      context.clearRect(0, 0, canvas.width, canvas.height);
      const place = this.#spot && tile.placeOf(this.#spot);
      tile.value.textContent = place ? tile.read(place) : "\u00a0";
      if (!picture) continue;
      context.imageSmoothingEnabled = picture instanceof ImageBitmap;
      context.drawImage(picture, 0, 0, canvas.width, canvas.height);
      if (!place) continue;
      const wide = canvas.width / picture.width;
      const high = canvas.height / picture.height;
      drawCross(context, (place.column + 0.5) * wide, (place.row + 0.5) * high);
      drawPointer(context, place.column * wide, place.row * high, wide, high);
    }
  }
}

/**
 * Faint lines through the pointer, by which the eye finds it in every tile.
 *
 * @param {CanvasRenderingContext2D} context
 * @param {number} x
 * @param {number} y
 */
function drawCross(context, x, y) {
  const { width, height } = context.canvas;
  for (const [colour, wide] of /** @type {const} */ ([
    ["rgb(0 0 0 / 60%)", 3],
    ["rgb(255 255 255 / 80%)", 1],
  ])) {
    context.strokeStyle = colour;
    context.lineWidth = wide;
    context.beginPath();
    context.moveTo(x, 0);
    context.lineTo(x, height);
    context.moveTo(0, y);
    context.lineTo(width, y);
    context.stroke();
  }
}
