/** The tab Certificate: which entries of a map no change up to epsilon can remove. */

/** @import { CertifyRequest, CertifyResult, JobResult } from "./types.js" */
/** @import { MapFile } from "./mapdata.js" */
/** @import { Store } from "./settings.js" */
/** @import { Subject } from "./subject.js" */
/** @import { Tile } from "./tiles.js" */

import { fetchBytes } from "./api.js";
import { box, find, input, oncePerFrame } from "./dom.js";
import { greyCopy, makeCanvas, paintPlane, pen } from "./draw.js";
import { decodeMap, fullColour, sumChannels } from "./mapdata.js";
import { clearNotice, guarded, tell } from "./notice.js";
import { JobPanel } from "./panel.js";
import { readValues } from "./shown.js";
import { TileGroup } from "./tiles.js";
import { capitalise, counted, digits, duration, nameClass, percent, tellOneOutput, thousands } from "./words.js";

// The two colours of the legend in page.css: they differ in lightness too.
const STAYS = [0x35, 0xe0, 0xc8];
const OPEN = [0xd9, 0x7a, 0x1e];

/**
 * @typedef {{result: CertifyResult, map: MapFile, radius: MapFile, backdrop: HTMLCanvasElement | null,
 *   tile: Tile}} Certified
 */

export class CertificateTab {
  #panel = new JobPanel("certify");
  #tiles = new TileGroup(box("certify-tiles"));
  /** @type {Certified | null} */
  #certified = null;
  #draw = oncePerFrame(() => this.#paint());

  /**
   * @param {Store} store
   * @param {Subject} subject
   */
  constructor(store, subject) {
    this.store = store;
    this.subject = subject;
    find("certify-form", HTMLFormElement).addEventListener("submit", (event) => {
      event.preventDefault();
      guarded(() => this.#certify())();
    });
    input("certify-epsilon").addEventListener("input", this.#draw);
    const check = () => this.#panel.refuse(tellOneOutput(store.model, "Certificates"));
    store.listen((changed) => changed.has("model") && check());
    check();
    subject.listenToRenewal(() => {
      this.#panel.reset();
      this.#certified = null;
      box("certify-result").hidden = true;
    });
  }

  /** @returns {Promise<void>} */
  async #certify() {
    clearNotice();
    const { photo, crop } = this.subject;
    if (photo === null) return tell("Choose a photo first.");
    const sigma = Number(input("certify-sigma").value);
    const samples = Number(input("certify-samples").value);
    const share = Number(input("certify-share").value) / 100;
    if (!(sigma > 0)) return tell("The noise must be a number above zero.");
    if (!(Number.isInteger(samples) && samples >= 1))
      return tell("The number of samples must be a whole number of at least 1.");
    if (!(share > 0 && share <= 1)) return tell("The share must be above 0 and at most 100 %.");
    /** @type {CertifyRequest} */
    const request = {
      kind: "certify",
      photo,
      model: this.store.values.model,
      target: this.subject.target,
      certify: { sigma, samples, sparsity: Number(share.toPrecision(6)) },
    };
    box("certify-result").hidden = true;
    await this.#panel.runOne(request, loadCertificate, (loaded) => loaded && this.#show(loaded, crop));
  }

  /**
   * @param {{result: CertifyResult, map: MapFile, radius: MapFile}} loaded
   * @param {ImageBitmap | null} crop the photo as it was when the job began
   */
  #show({ result, map, radius }, crop) {
    this.#tiles.clear();
    const tile = this.#tiles.add("What surely stays");
    this.#certified = { result, map, radius, backdrop: crop && greyCopy(crop), tile };
    tile.read = ({ row, column }) => `holds up to epsilon ${readValues(radius, radius.exact, row, column)}`;
    const whole = this.#tiles.add("Map");
    const plane = sumChannels(map.exact, map.height * map.width, false);
    const canvas = makeCanvas(map.width, map.height);
    paintPlane(canvas, plane, map.width, fullColour(plane), { colours: "inferno", signed: false });
    whole.read = ({ row, column }) => readValues(map, map.exact, row, column);
    whole.show(canvas);
    if (crop) this.#tiles.add("Photo").show(crop);

    box("certify-sentence").textContent = result.sentence;
    box("certify-facts").textContent =
      [
        `for ${nameClass(result.label, result.target)}`,
        `noise ${digits(result.sigma)}`,
        counted(result.samples, "sample"),
        `holds with probability ${digits(100 * (1 - result.alpha))} % over the noise`,
        duration(result.seconds),
      ]
        .map((part, place) => (place === 0 ? capitalise(part) : part))
        .join("; ") + ".";
    find("certify-json", HTMLAnchorElement).href = result.files.json;
    // Place 0 of the slider is no change at all; the others are the epsilons of the server.
    input("certify-epsilon").max = String(result.epsilons.length);
    input("certify-epsilon").value = String(Math.min(1, result.epsilons.length));
    box("certify-result").hidden = false;
    this.#paint();
  }

  #paint() {
    if (!this.#certified) return;
    const { result, map, radius, backdrop, tile } = this.#certified;
    const place = Number(input("certify-epsilon").value);
    const epsilon = place === 0 ? 0 : (result.epsilons[place - 1] ?? 0);
    box("certify-epsilon-value").textContent = digits(epsilon);
    input("certify-epsilon").setAttribute("aria-valuetext", `epsilon ${digits(epsilon)}`);
    const stays = place === 0 ? result.active : (result.stays[place - 1] ?? 0);
    const overlap = place === 0 ? 1 : (result.overlap[place - 1] ?? 0);
    box("certify-counts").textContent =
      epsilon === 0
        ? `The map has ${counted(result.active, "entry", "entries")}; without a change all of them stay.`
        : `For every change of length up to ${digits(epsilon)}: ${thousands(stays)} of ` +
          `${counted(result.active, "entry", "entries")} surely stay ` +
          `(${percent(result.active > 0 ? stays / result.active : 0)}); the overlap with the map of any such photo is at least ${percent(overlap)}.`;
    tile.show(paintCertified(map, radius, backdrop, epsilon));
  }
}

/** @param {JobResult} result */
async function loadCertificate(result) {
  if (result.kind !== "certify") return null;
  const [map, radius] = await Promise.all([
    fetchBytes(result.files.map).then(decodeMap),
    fetchBytes(result.files.radius).then(decodeMap),
  ]);
  return { result, map, radius };
}

/**
 * The photo in grey, over it the entries of the map: those that surely stay in one colour, the others in another.
 *
 * @param {MapFile} map
 * @param {MapFile} radius
 * @param {HTMLCanvasElement | null} backdrop
 * @param {number} epsilon
 */
function paintCertified(map, radius, backdrop, epsilon) {
  const { channels, height, width } = map;
  const pixels = height * width;
  const canvas = makeCanvas(width, height);
  const context = pen(canvas);
  if (backdrop) {
    context.globalAlpha = 0.45;
    context.drawImage(backdrop, 0, 0, width, height);
    context.globalAlpha = 1;
  }
  const image = context.getImageData(0, 0, width, height);
  const needed = epsilon * (1 - 1e-6); // the radius is rounded to 32 bits
  for (let pixel = 0; pixel < pixels; pixel++) {
    let [active, stays] = [false, false];
    for (let entry = pixel; entry < channels * pixels; entry += pixels) {
      if (map.exact[entry] === 0) continue;
      active = true;
      if (epsilon === 0 || (radius.exact[entry] ?? 0) >= needed) stays = true;
    }
    const byte = 4 * pixel;
    const colour = stays ? STAYS : active ? OPEN : null;
    const shade = (image.data[byte + 3] ?? 0) / 255;
    for (let part = 0; part < 3; part++) {
      image.data[byte + part] = colour ? (colour[part] ?? 0) : (image.data[byte + part] ?? 0) * shade;
    }
    image.data[byte + 3] = 255;
  }
  context.putImageData(image, 0, 0);
  return canvas;
}
