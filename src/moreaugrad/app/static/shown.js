/** How the map of the tab Explain is drawn: share, strength, colours, sign, values. Asks the server nothing. */

/** @import { Preview } from "./types.js" */
/** @import { SaliencyMap, Shown } from "./mapdata.js" */
/** @import { Place } from "./stage.js" */
/** @import { Store } from "./settings.js" */

import { isColourName } from "./colours.js";
import { box, button, find, input, oncePerFrame, select } from "./dom.js";
import { makeCanvas, paintLegend, paintPlane } from "./draw.js";
import { decodePreview, fullColour, sumChannels } from "./mapdata.js";
import { Stage } from "./stage.js";
import { digits, nameChannels, percent } from "./words.js";

const HINT = "Point at the map, or move over it with the arrow keys, to read its values.";

export class ShownMap {
  /** @type {SaliencyMap | null} */
  #map = null;
  /** @type {Shown | null} */
  #shown = null;
  /** @type {Float32Array | null} */
  #plane = null;
  /** @type {{plane: Float32Array, width: number} | null} */
  #preview = null;
  #neverNegative = false;
  /** Whether another map was asked for after this one. */
  #earlier = false;
  /** @type {Place | null} */
  #place = null;
  /** The colours to go back to when the sign is switched off. */
  #before = /** @type {import("./colours.js").ColourName} */ ("inferno");
  #canvas = makeCanvas(1, 1);
  #legend = find("legend", HTMLCanvasElement);
  #draw = oncePerFrame(() => this.#paint());

  /**
   * @param {Store} store
   * @param {() => void} solveAgain
   */
  constructor(store, solveAgain) {
    this.store = store;
    this.stage = new Stage(find("stage", HTMLCanvasElement), {
      pointed: (place, byKey) => this.#point(place, byKey),
      divided: (share) => (input("divider").value = String(Math.round(100 * share))),
    });
    this.#listen(solveAgain);
    store.listen((changed) => {
      if (changed.has("share") || changed.has("colours") || changed.has("signed")) this.#draw();
      if (changed.has("overlay") || changed.has("colours") || changed.has("signed")) this.#showFields();
    });
    this.#showFields();
    this.#showShare();
  }

  /** @param {() => void} solveAgain */
  #listen(solveAgain) {
    const { store, stage } = this;
    input("share").addEventListener("input", () => store.change({ share: this.#readShare() }));
    input("overlay").addEventListener("input", () => store.change({ overlay: Number(input("overlay").value) }));
    select("colours").addEventListener("change", () => {
      const name = select("colours").value;
      if (isColourName(name)) store.change({ colours: name });
    });
    input("signed").addEventListener("change", () => {
      const signed = input("signed").checked;
      if (signed && store.values.colours !== "red-blue") this.#before = store.values.colours;
      const colours = signed ? "red-blue" : store.values.colours === "red-blue" ? this.#before : store.values.colours;
      store.change({ signed, colours });
    });
    input("divider").addEventListener("input", () => stage.setDivider(Number(input("divider").value) / 100));
    button("zoom-in").addEventListener("click", () => stage.zoom(1.5));
    button("zoom-out").addEventListener("click", () => stage.zoom(1 / 1.5));
    button("zoom-reset").addEventListener("click", () => stage.showAll());
    button("solve-again").addEventListener("click", () => {
      solveAgain();
      input("share").focus(); // the button goes away, and would take the focus along
    });
  }

  /** The slider is logarithmic: equal steps are equal factors. */
  #readShare() {
    return Number((10 ** Number(input("share").value)).toPrecision(4));
  }

  /** Takes the map away, as when the photo changes. */
  clear() {
    this.#map = this.#shown = this.#plane = this.#preview = null;
    this.#neverNegative = false;
    this.stage.setMap(null);
    this.#nameCorner("");
    this.#showFields();
    this.#showShare();
    this.#showValue();
    this.#draw();
  }

  /** Says of the map that another one is asked for. */
  markEarlier() {
    this.#earlier = true;
    this.#draw();
  }

  /** @param {Preview} preview */
  setPreview(preview) {
    this.#preview = { plane: decodePreview(preview), width: preview.width };
    this.#draw();
  }

  /** Back from the previews to the last map, as when a job was stopped. */
  endPreview() {
    if (!this.#preview || !this.#map) return;
    this.#preview = null;
    this.#draw();
  }

  /**
   * @param {SaliencyMap} map
   * @param {boolean} neverNegative
   */
  setMap(map, neverNegative) {
    this.#preview = null;
    this.#map = map;
    this.#earlier = false;
    this.#neverNegative = neverNegative;
    this.#showFields();
    this.#paint(); // at once: who waits for the result finds it drawn
  }

  /** Whether the sign is drawn: the user wants it, and the map has one. */
  get look() {
    const { colours, signed } = this.store.values;
    return { colours, signed: signed && !this.#neverNegative };
  }

  #paint() {
    if (this.#preview) this.#paintPreview(this.#preview);
    else if (this.#map) this.#paintMap(this.#map);
    else paintLegend(this.#legend, this.look);
    this.#showShare();
    this.#showValue();
  }

  /** @param {{plane: Float32Array, width: number}} preview */
  #paintPreview({ plane, width }) {
    const look = { ...this.look, signed: false }; // previews come without signs
    paintPlane(this.#canvas, plane, width, fullColour(plane), look);
    this.stage.setMap(this.#canvas);
    this.#nameCorner("preview");
    this.#showLegend(look, null);
  }

  /** @param {SaliencyMap} map */
  #paintMap(map) {
    const look = this.look;
    const pixels = map.height * map.width;
    const shown = map.show(this.store.values.share);
    this.#shown = shown;
    const reuse = this.#plane?.length === pixels ? this.#plane : undefined;
    this.#plane = sumChannels(shown.values, pixels, look.signed, reuse);
    const full = fullColour(this.#plane);
    paintPlane(this.#canvas, this.#plane, map.width, full, look);
    this.stage.setMap(this.#canvas);
    this.#nameCorner(this.#earlier ? "earlier map" : "map");
    this.#showLegend(look, full);
  }

  /** @param {string} text */
  #nameCorner(text) {
    box("stage-corner").textContent = text;
    box("stage-corner").hidden = text === "";
  }

  /**
   * @param {import("./draw.js").Look} look
   * @param {number | null} full
   */
  #showLegend(look, full) {
    paintLegend(this.#legend, look);
    box("legend-low").textContent = look.signed && full !== null ? digits(-full) : "0";
    box("legend-high").textContent = full === null ? "largest" : digits(full);
  }

  #showFields() {
    const { overlay, colours, signed } = this.store.values;
    this.stage.setOverlay(overlay / 100);
    input("overlay").value = String(overlay);
    box("overlay-value").textContent = `${overlay} %`;
    select("colours").value = colours;
    input("signed").checked = signed;
    input("signed").disabled = this.#neverNegative;
    box("signed-note").hidden = !this.#neverNegative;
  }

  #showShare() {
    const map = this.#map;
    const share = this.store.values.share ?? map?.solvedShare ?? null;
    const slider = input("share");
    if (share !== null && Math.abs(this.#readShare() - share) > 1e-3 * share) slider.value = String(Math.log10(share));
    box("share-value").textContent = share === null ? "" : percent(share);
    slider.setAttribute("aria-valuetext", share === null ? "not known yet" : percent(share));
    if (this.#preview) {
      // it has the share that the server solves
      button("solve-again").hidden = true;
      box("share-note").textContent = "";
      return;
    }
    const solved = this.#shown?.solved ?? true;
    const asked = share !== null && map !== null && !map.isSolved(share);
    button("solve-again").hidden = !(asked && map.canSolve);
    box("share-note").textContent =
      !map || !this.#shown
        ? ""
        : asked && !map.canCut(share)
          ? "This share is not in what the server sent: solve again to see it."
          : !solved && map.canSolve
            ? "The threshold of the same gradients, close to what solving again gives."
            : !solved
              ? `The largest entries of this map; ${percent(this.#shown.kept)} are not zero.`
              : map.canSolve
                ? "As the server solved it. Move the slider to see another share."
                : this.#shown.kept < 0.999
                  ? `The whole map; ${percent(this.#shown.kept)} of its entries are not zero.`
                  : "The whole map. Move the slider to see its largest entries only.";
  }

  /**
   * @param {Place | null} place
   * @param {boolean} byKey
   */
  #point(place, byKey) {
    this.#place = place;
    // Read out only what keys ask for; a mouse would make it chatter.
    box("pointer-value").setAttribute("aria-live", byKey ? "polite" : "off");
    this.#showValue();
  }

  #showValue() {
    const output = box("pointer-value");
    if (!this.#place) {
      output.textContent = HINT;
      return;
    }
    const { row, column } = this.#place;
    const start = `row ${row}, column ${column}`;
    if (this.#preview) {
      const value = this.#preview.plane[row * this.#preview.width + column] ?? 0;
      output.textContent = `${start}: preview, ${percent(value)} of the largest`;
    } else if (this.#map && this.#shown) {
      output.textContent = `${start}: ${readValues(this.#map, this.#shown.values, row, column)}`;
    } else {
      output.textContent = `${start}: no map yet`;
    }
  }
}

/**
 * The values of one pixel in words: each channel, and their sum.
 *
 * @param {{channels: number, height: number, width: number}} shape
 * @param {Float32Array} values
 * @param {number} row
 * @param {number} column
 */
export function readValues({ channels, height, width }, values, row, column) {
  const pixel = row * width + column;
  const names = nameChannels(channels);
  const each = names.map((_, channel) => values[channel * height * width + pixel] ?? 0);
  if (channels === 1) return digits(each[0] ?? 0);
  const sum = each.reduce((total, value) => total + value, 0);
  const listed = names.length > 4 ? [] : names.map((name, channel) => `${name} ${digits(each[channel] ?? 0)}`);
  return [...listed, `sum ${digits(sum)}`].join(", ");
}
