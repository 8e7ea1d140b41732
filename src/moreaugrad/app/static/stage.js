/** The large canvas: photo on the left of a divider, map on the right, with zoom and a pointer that reads values. */

import { oncePerFrame } from "./dom.js";
import { drawPointer, greyCopy, pen } from "./draw.js";

const MOST_ZOOM = 40;
const GRIP = 14; // how near to the divider a press takes hold of it, in CSS pixels

/** @typedef {{row: number, column: number}} Place */

export class Stage {
  /** @type {HTMLCanvasElement} */
  #canvas;
  /** @type {ImageBitmap | null} */
  #photo = null;
  /** @type {HTMLCanvasElement | null} */
  #grey = null;
  /** @type {HTMLCanvasElement | null} the painted map */
  #map = null;
  #width = 224;
  #height = 224;
  #overlay = 0.7;
  #divider = 0.5;
  /** Zoom, and the corner of what is seen, in pixels of the map. */
  #view = { zoom: 1, left: 0, top: 0 };
  /** @type {Place | null} */
  #place = null;
  /** @type {Map<number, {x: number, y: number}>} pressed pointers, on the canvas from 0 to 1 */
  #pressed = new Map();
  #holdsDivider = false;
  #draw = oncePerFrame(() => this.#paint());

  /**
   * @param {HTMLCanvasElement} canvas
   * @param {{pointed: (place: Place | null, byKey: boolean) => void, divided: (share: number) => void}} listener
   */
  constructor(canvas, listener) {
    this.#canvas = canvas;
    this.listener = listener;
    new ResizeObserver(this.#draw).observe(canvas);
    canvas.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    canvas.addEventListener("pointerdown", (event) => this.#press(event));
    canvas.addEventListener("pointermove", (event) => this.#move(event));
    for (const name of /** @type {const} */ (["pointerup", "pointercancel"])) {
      canvas.addEventListener(name, (event) => this.#release(event));
    }
    canvas.addEventListener("pointerleave", ({ pointerType }) => {
      if (pointerType === "touch") return; // what a finger has shown stays when it is lifted
      if (this.#pressed.size === 0 && document.activeElement !== canvas) this.#point(null, false);
    });
    canvas.addEventListener("blur", () => this.#point(null, false));
    canvas.addEventListener("keydown", (event) => this.#key(event));
  }

  /** @param {ImageBitmap | null} photo */
  setPhoto(photo) {
    this.#photo = photo;
    this.#grey = photo && greyCopy(photo);
    if (photo) this.#setSize(photo.width, photo.height);
    this.#draw();
  }

  /**
   * @param {HTMLCanvasElement | null} map as painted; painted again, it is given again
   */
  setMap(map) {
    this.#map = map;
    if (map) this.#setSize(map.width, map.height);
    this.#draw();
  }

  /** @param {number} strength from 0 to 1 */
  setOverlay(strength) {
    this.#overlay = strength;
    this.#draw();
  }

  /** @param {number} share of the width that shows the photo */
  setDivider(share) {
    this.#divider = Math.min(1, Math.max(0, share));
    this.#draw();
  }

  /**
   * @param {number} factor
   * @param {{x: number, y: number}} [around] a place on the canvas from 0 to 1 that stays where it is
   */
  zoom(factor, around = { x: 0.5, y: 0.5 }) {
    const view = this.#view;
    const next = Math.min(MOST_ZOOM, Math.max(1, view.zoom * factor));
    view.left += around.x * this.#width * (1 / view.zoom - 1 / next);
    view.top += around.y * this.#height * (1 / view.zoom - 1 / next);
    view.zoom = next;
    this.#clamp();
  }

  showAll() {
    this.#view = { zoom: 1, left: 0, top: 0 };
    this.#clamp();
  }

  /**
   * @param {number} width
   * @param {number} height
   */
  #setSize(width, height) {
    if (width === this.#width && height === this.#height) return;
    this.#width = width;
    this.#height = height;
    this.#canvas.style.aspectRatio = `${width} / ${height}`;
    this.#place = null;
    this.showAll();
  }

  #clamp() {
    const view = this.#view;
    view.left = Math.min(this.#width * (1 - 1 / view.zoom), Math.max(0, view.left));
    view.top = Math.min(this.#height * (1 - 1 / view.zoom), Math.max(0, view.top));
    // Unzoomed, a finger that moves up or down scrolls the page.
    this.#canvas.style.touchAction = view.zoom > 1 ? "none" : "pan-y";
    this.#draw();
  }

  /**
   * @param {MouseEvent} event
   * @returns {{x: number, y: number}} from 0 to 1
   */
  #locate(event) {
    const frame = this.#canvas.getBoundingClientRect();
    return { x: (event.clientX - frame.left) / frame.width, y: (event.clientY - frame.top) / frame.height };
  }

  /**
   * @param {{x: number, y: number}} at
   * @returns {Place | null}
   */
  #placeAt({ x, y }) {
    const column = Math.floor(this.#view.left + (x * this.#width) / this.#view.zoom);
    const row = Math.floor(this.#view.top + (y * this.#height) / this.#view.zoom);
    return column >= 0 && row >= 0 && column < this.#width && row < this.#height ? { row, column } : null;
  }

  /**
   * @param {Place | null} place
   * @param {boolean} byKey
   */
  #point(place, byKey) {
    this.#place = place;
    this.listener.pointed(place, byKey);
    this.#draw();
  }

  /** @param {WheelEvent} event */
  #wheel(event) {
    const factor = Math.exp(-event.deltaY * (event.deltaMode === 0 ? 0.002 : 0.06));
    if (factor <= 1 && this.#view.zoom <= 1) return; // the page scrolls on
    event.preventDefault();
    this.zoom(factor, this.#locate(event));
  }

  /** @param {PointerEvent} event */
  #press(event) {
    if (event.button !== 0) return; // the others belong to the browser
    const at = this.#locate(event);
    this.#pressed.set(event.pointerId, at);
    this.#canvas.setPointerCapture(event.pointerId);
    const away = Math.abs(at.x - this.#divider) * this.#canvas.clientWidth;
    this.#holdsDivider = this.#pressed.size === 1 && away <= GRIP;
    this.#point(this.#placeAt(at), false);
  }

  /** @param {PointerEvent} event */
  #move(event) {
    const at = this.#locate(event);
    const before = this.#pressed.get(event.pointerId);
    if (!before) {
      const near = Math.abs(at.x - this.#divider) * this.#canvas.clientWidth <= GRIP;
      this.#canvas.style.cursor = near ? "ew-resize" : this.#view.zoom > 1 ? "grab" : "crosshair";
      this.#point(this.#placeAt(at), false);
      return;
    }
    if (this.#holdsDivider) {
      this.setDivider(at.x);
      this.listener.divided(this.#divider);
    } else {
      this.#drag(event.pointerId, before, at);
    }
    this.#pressed.set(event.pointerId, at);
  }

  /**
   * One finger moves the picture, two pull it larger or smaller.
   *
   * @param {number} id
   * @param {{x: number, y: number}} before
   * @param {{x: number, y: number}} at
   */
  #drag(id, before, at) {
    const parts = this.#pressed.size;
    this.#view.left -= ((at.x - before.x) * this.#width) / this.#view.zoom / parts;
    this.#view.top -= ((at.y - before.y) * this.#height) / this.#view.zoom / parts;
    if (parts === 2) {
      for (const [other, fixed] of this.#pressed) {
        if (other === id) continue;
        const was = Math.hypot(before.x - fixed.x, before.y - fixed.y);
        const is = Math.hypot(at.x - fixed.x, at.y - fixed.y);
        if (was > 0.02) this.zoom(is / was, { x: (at.x + fixed.x) / 2, y: (at.y + fixed.y) / 2 });
      }
    }
    this.#clamp();
  }

  /** @param {PointerEvent} event */
  #release(event) {
    this.#pressed.delete(event.pointerId);
    this.#holdsDivider = false;
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return; // those belong to the browser
    const steps = /** @type {Record<string, [number, number]>} */ ({
      ArrowUp: [-1, 0],
      ArrowDown: [1, 0],
      ArrowLeft: [0, -1],
      ArrowRight: [0, 1],
    })[event.key];
    if (steps) {
      const from = this.#place ?? { row: Math.floor(this.#height / 2), column: Math.floor(this.#width / 2) };
      const far = event.shiftKey ? 10 : this.#place ? 1 : 0; // the first press shows where the pointer is
      const row = Math.min(this.#height - 1, Math.max(0, from.row + far * steps[0]));
      const column = Math.min(this.#width - 1, Math.max(0, from.column + far * steps[1]));
      this.#bringIntoView(row, column);
      this.#point({ row, column }, true);
    } else if (event.key === "+" || event.key === "=") this.zoom(1.5, this.#whereIs());
    else if (event.key === "-") this.zoom(1 / 1.5, this.#whereIs());
    else if (event.key === "0") this.showAll();
    else return;
    event.preventDefault();
  }

  /** Where the pointer is on the canvas. */
  #whereIs() {
    if (!this.#place) return { x: 0.5, y: 0.5 };
    const { zoom, left, top } = this.#view;
    return {
      x: ((this.#place.column + 0.5 - left) * zoom) / this.#width,
      y: ((this.#place.row + 0.5 - top) * zoom) / this.#height,
    };
  }

  /**
   * @param {number} row
   * @param {number} column
   */
  #bringIntoView(row, column) {
    const view = this.#view;
    view.left = Math.max(column + 1 - this.#width / view.zoom, Math.min(column, view.left));
    view.top = Math.max(row + 1 - this.#height / view.zoom, Math.min(row, view.top));
    this.#clamp();
  }

  #paint() {
    const canvas = this.#canvas;
    const ratio = Math.min(window.devicePixelRatio || 1, 3);
    const width = Math.round(canvas.clientWidth * ratio);
    const height = Math.round(canvas.clientHeight * ratio);
    if (width === 0 || height === 0) return; // its tab is not shown
    if (canvas.width !== width || canvas.height !== height) {
      canvas.width = width;
      canvas.height = height;
    }
    const context = pen(canvas);
    context.fillStyle = "#101014";
    context.fillRect(0, 0, width, height);
    const scale = (width / this.#width) * this.#view.zoom;
    /** @param {CanvasImageSource} picture @param {boolean} smooth */
    const put = (picture, smooth) => {
      context.imageSmoothingEnabled = smooth;
      const { left, top } = this.#view;
      context.drawImage(picture, -left * scale, -top * scale, this.#width * scale, this.#height * scale);
    };
    const smooth = scale < 6 * ratio; // far in, single pixels are what one wants to see
    if (this.#photo) put(this.#photo, smooth);
    if (this.#map) this.#paintMap(context, put, smooth, ratio);
    if (this.#place) {
      const { row, column } = this.#place;
      drawPointer(context, (column - this.#view.left) * scale, (row - this.#view.top) * scale, scale, scale);
    }
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {(picture: CanvasImageSource, smooth: boolean) => void} put
   * @param {boolean} smooth
   * @param {number} ratio
   */
  #paintMap(context, put, smooth, ratio) {
    const { width, height } = this.#canvas;
    const line = Math.round(this.#divider * width);
    context.save();
    context.beginPath();
    context.rect(line, 0, width - line, height);
    context.clip();
    if (this.#grey && this.#overlay > 0) put(this.#grey, smooth);
    context.globalAlpha = this.#overlay;
    if (this.#map) put(this.#map, false);
    context.restore();
    const thick = 2 * ratio;
    context.fillStyle = "#fff";
    context.fillRect(line - thick / 2, 0, thick, height);
    context.fillStyle = "rgb(0 0 0 / 60%)";
    context.fillRect(line - thick / 2 - ratio, 0, ratio, height);
    context.fillRect(line + thick / 2, 0, ratio, height);
    this.#paintGrip(context, line, height / 2, ratio);
  }

  /**
   * The handle of the divider, with an arrow to each side.
   *
   * @param {CanvasRenderingContext2D} context
   * @param {number} x
   * @param {number} y
   * @param {number} ratio
   */
  #paintGrip(context, x, y, ratio) {
    context.beginPath();
    context.arc(x, y, 13 * ratio, 0, 2 * Math.PI);
    context.fillStyle = "#fff";
    context.fill();
    context.lineWidth = ratio;
    context.strokeStyle = "rgb(0 0 0 / 60%)";
    context.stroke();
    context.fillStyle = "#222";
    for (const side of [-1, 1]) {
      context.beginPath();
      context.moveTo(x + side * 9 * ratio, y);
      context.lineTo(x + side * 4 * ratio, y - 4 * ratio);
      context.lineTo(x + side * 4 * ratio, y + 4 * ratio);
      context.fill();
    }
  }
}
