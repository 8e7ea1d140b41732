/** The tab Compare: several methods on the same photo and class, one job after another, under one pointer. */

/** @import { ExplainRequest, Method } from "./types.js" */
/** @import { MapFile } from "./mapdata.js" */
/** @import { Store } from "./settings.js" */
/** @import { Subject } from "./subject.js" */
/** @import { Tile } from "./tiles.js" */

import { fetchBytes } from "./api.js";
import { add, box, button } from "./dom.js";
import { makeCanvas, paintPlane } from "./draw.js";
import { decodeMap, fullColour, sumChannels } from "./mapdata.js";
import { clearNotice, guarded, sentenceOf, tell } from "./notice.js";
import { JobPanel } from "./panel.js";
import { defaultSettings, optionsOf } from "./settings.js";
import { readValues } from "./shown.js";
import { TileGroup } from "./tiles.js";
import { capitalise, counted, nameClass, percent, tellCost, titleOfMethod } from "./words.js";

/** @typedef {{tile: Tile, file: MapFile, neverNegative: boolean}} Drawn */

export class CompareTab {
  #panel = new JobPanel("compare");
  #tiles = new TileGroup(box("compare-tiles"));
  /** @type {Drawn[]} */
  #drawn = [];
  /** The newest run: an older one that comes to its end has nothing to show any more. */
  #run = { stopped: false };

  /**
   * @param {Store} store
   * @param {Subject} subject
   */
  constructor(store, subject) {
    this.store = store;
    this.subject = subject;
    this.#listMethods();
    this.#panel.run.addEventListener(
      "click",
      guarded(() => this.#compare()),
    );
    this.#panel.stop.addEventListener("click", () => (this.#run.stopped = true));
    subject.listenToRenewal(() => {
      this.#run = { stopped: true }; // the run before has nothing to show any more
      this.#panel.reset();
      this.#drawn = [];
      this.#tiles.clear();
    });
    store.listen((changed) => {
      if (changed.has("colours") || changed.has("signed")) for (const each of this.#drawn) this.#paint(each);
    });
  }

  #listMethods() {
    const list = box("compare-methods");
    for (const method of this.store.about.methods) {
      const label = add(list, "label", undefined, "check");
      const tick = add(label, "input");
      tick.type = "checkbox";
      tick.name = "compare-method";
      tick.value = method.name;
      tick.checked = !method.slow;
      const words = add(label, "span");
      add(words, "strong", titleOfMethod(method.name));
      if (method.slow) add(words, "em", "slow", "badge");
      add(words, "span", `${capitalise(method.summary)}.`, "faint");
    }
    button("compare-all").addEventListener("click", () => this.#tickAll(true));
    button("compare-none").addEventListener("click", () => this.#tickAll(false));
  }

  /** @returns {HTMLInputElement[]} */
  get #ticks() {
    return [...document.querySelectorAll("#compare-methods input")].filter((each) => each instanceof HTMLInputElement);
  }

  /** @param {boolean} on */
  #tickAll(on) {
    for (const tick of this.#ticks) tick.checked = on;
  }

  async #compare() {
    const chosen = new Set(this.#ticks.filter(({ checked }) => checked).map(({ value }) => value));
    const methods = this.store.about.methods.filter(({ name }) => chosen.has(name));
    const { photo } = this.subject;
    clearNotice();
    if (photo === null) return tell("Choose a photo first.");
    if (methods.length === 0) return tell("Choose at least one method.");
    const run = { stopped: false };
    this.#run = run;
    this.#drawn = [];
    this.#tiles.clear();
    if (this.subject.crop) this.#tiles.add("Photo").show(this.subject.crop);
    const tiles = methods.map((method) => this.#addTile(method));
    this.#panel.showRunning(true);
    let { target } = this.subject;
    const { model } = this.store.values;
    let finished = 0;
    for (const [place, method] of methods.entries()) {
      const tile = tiles[place];
      if (!tile || run.stopped) break;
      const request = this.#request(method, photo, model, target);
      tile.say(`${capitalise(method.summary)}.`, "Computing …");
      try {
        const outcome = await this.#panel.follow(
          request,
          `${titleOfMethod(method.name)} (${place + 1} of ${methods.length}): `,
        );
        if (run !== this.#run) return; // its tiles and buttons are the newer one's now
        if (run.stopped || outcome.state !== "done") break;
        if (outcome.result.kind !== "explain") continue;
        target = outcome.result.target; // all others explain the class of the first one
        const file = decodeMap(await fetchBytes(outcome.result.files.map));
        if (run !== this.#run) return;
        this.#show(tile, method, outcome.result, file);
        finished++;
      } catch (problem) {
        if (run !== this.#run) return;
        tile.fail(sentenceOf(problem));
        tell(`${titleOfMethod(method.name)}: ${sentenceOf(problem)}`);
      }
    }
    for (const tile of tiles) if (!tile.picture && !tile.failed) tile.say("Stopped before its turn.");
    this.#panel.showRunning(false);
    this.#panel.say(
      finished === methods.length
        ? `Done: ${counted(finished, "map")}.`
        : `${finished} of ${counted(methods.length, "map")}.`,
    );
  }

  /** @param {Method} method */
  #addTile(method) {
    const tile = this.#tiles.add(titleOfMethod(method.name));
    tile.say(`${capitalise(method.summary)}.`, "Waits for its turn.");
    return tile;
  }

  /**
   * Each method with its own defaults, but the same quality and seed.
   *
   * @param {Method} method
   * @param {string} photo
   * @param {string} model
   * @param {number | null} target
   * @returns {ExplainRequest}
   */
  #request(method, photo, model, target) {
    const { about, values } = this.store;
    const settings = { ...defaultSettings(about), quality: values.quality, seed: values.seed };
    return { kind: "explain", photo, model, method: method.name, target, options: optionsOf(about, settings, method) };
  }

  /**
   * @param {Tile} tile
   * @param {Method} method
   * @param {import("./types.js").ExplainResult} result
   * @param {MapFile} file
   */
  #show(tile, method, result, file) {
    const drawn = { tile, file, neverNegative: result.never_negative };
    this.#drawn.push(drawn);
    tile.read = ({ row, column }) => readValues(file, file.exact, row, column);
    tile.say(
      `${capitalise(method.summary)}.`,
      `For ${nameClass(result.label, result.target)}: ${percent(result.kept)} of the entries are not zero.`,
      tellCost(result),
      result.known ?? "",
    );
    this.#paint(drawn);
  }

  /** Each map on its own scale: methods have different units. @param {Drawn} drawn */
  #paint({ tile, file, neverNegative }) {
    const { colours, signed } = this.store.values;
    const look = { colours, signed: signed && !neverNegative };
    const plane = sumChannels(file.exact, file.height * file.width, look.signed);
    const canvas = makeCanvas(file.width, file.height);
    paintPlane(canvas, plane, file.width, fullColour(plane), look);
    tile.show(canvas);
  }
}
