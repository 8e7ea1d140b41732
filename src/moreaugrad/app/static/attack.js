/** The tab Attack: how far a small change of the photo moves the map. */

/** @import { AttackRequest, AttackResult, JobResult } from "./types.js" */
/** @import { MapFile } from "./mapdata.js" */
/** @import { Store } from "./settings.js" */
/** @import { Subject } from "./subject.js" */

import { fetchBytes, fetchPicture } from "./api.js";
import { add, box, fillMenu, find, input, select } from "./dom.js";
import { makeCanvas, paintPlane } from "./draw.js";
import { decodeMap, fullColour, sumChannels } from "./mapdata.js";
import { clearNotice, guarded, tell } from "./notice.js";
import { JobPanel } from "./panel.js";
import { optionsOf } from "./settings.js";
import { readValues } from "./shown.js";
import { TileGroup } from "./tiles.js";
import { digits, nameClass, tellCost, tellOneOutput, titleOfMethod } from "./words.js";

/** @typedef {{result: AttackResult, before: MapFile, after: MapFile, attacked: ImageBitmap}} Attacked */

export class AttackTab {
  #panel = new JobPanel("attack");
  #tiles = new TileGroup(box("attack-tiles"));

  /**
   * @param {Store} store
   * @param {Subject} subject
   */
  constructor(store, subject) {
    this.store = store;
    this.subject = subject;
    const methods = store.about.methods.filter(({ attackable }) => attackable);
    fillMenu(
      select("attack-method"),
      methods.map(({ name }) => ({ value: name, text: titleOfMethod(name) })),
    );
    const follow = () => {
      if (store.method.attackable) select("attack-method").value = store.method.name;
    };
    store.listen((changed) => changed.has("method") && follow());
    follow();
    subject.listenToRenewal(() => {
      this.#panel.reset();
      box("attack-result").hidden = true;
    });
    const check = () => {
      if (methods.length === 0) this.#panel.refuse("No method of this server can be attacked.");
      else this.#panel.refuse(tellOneOutput(store.model, "Attacks"));
    };
    store.listen((changed) => changed.has("model") && check());
    check();
    find("attack-form", HTMLFormElement).addEventListener("submit", (event) => {
      event.preventDefault();
      guarded(() => this.#attack())();
    });
  }

  /** @returns {Promise<void>} */
  async #attack() {
    clearNotice();
    const { photo, crop } = this.subject;
    if (photo === null) return tell("Choose a photo first.");
    const epsilon = Number(input("attack-epsilon").value);
    const steps = Number(input("attack-steps").value);
    if (!(epsilon > 0)) return tell("The strength must be a number above zero.");
    if (!(Number.isInteger(steps) && steps >= 1))
      return tell("The number of steps must be a whole number of at least 1.");
    const { about, values } = this.store;
    const method = about.methods.find(({ name }) => name === select("attack-method").value);
    if (!method) return tell("Choose a method first.");
    /** @type {AttackRequest} */
    const request = {
      kind: "attack",
      photo,
      model: values.model,
      method: method.name,
      target: this.subject.target,
      options: optionsOf(about, values, method),
      attack: { epsilon, steps },
    };
    box("attack-result").hidden = true;
    await this.#panel.runOne(request, loadAttack, (loaded) => loaded && this.#show(loaded, crop));
  }

  /**
   * @param {Attacked} loaded
   * @param {ImageBitmap | null} crop the photo as it was when the attack began
   */
  #show({ result, before, after, attacked }, crop) {
    const signed = [before, after].some(({ exact }) => exact.some((value) => value < 0));
    const pixels = before.height * before.width;
    const difference = { ...before, exact: after.exact.map((value, entry) => value - (before.exact[entry] ?? 0)) };
    const planes = [before, after].map(({ exact }) => sumChannels(exact, pixels, signed));
    const full = fullColour(...planes); // one scale, or the maps could not be compared
    this.#tiles.clear();
    if (crop) this.#tiles.add("Photo").show(crop);
    this.#tiles.add("Attacked photo").show(attacked);
    for (const [title, file] of /** @type {const} */ ([
      ["Map before", before],
      ["Map after", after],
      ["Difference", difference],
    ])) {
      const centred = signed || file === difference;
      const canvas = makeCanvas(file.width, file.height);
      const look = /** @type {import("./draw.js").Look} */ ({
        colours: centred ? "red-blue" : "inferno",
        signed: centred,
      });
      paintPlane(canvas, sumChannels(file.exact, pixels, centred), file.width, full, look);
      const tile = this.#tiles.add(title);
      tile.read = ({ row, column }) => readValues(file, file.exact, row, column);
      tile.show(canvas);
      tile.say(file === difference ? "After less before, on the same scale." : `Full colour at ${digits(full)}.`);
    }
    this.#tell(result);
  }

  /** @param {AttackResult} result */
  #tell(result) {
    box("attack-sentence").textContent = result.sentence;
    box("attack-facts").textContent =
      [
        `${titleOfMethod(result.method)} for ${nameClass(result.label, result.target)}`,
        result.same_class ? "the network still says the same class" : "the network now says another class",
        `change of length ${digits(result.epsilon)} (${result.norm})`,
        result.change_8bit === null || result.largest_change_8bit === null
          ? ""
          : `${digits(result.change_8bit)} in pixel steps of 1/255 over the whole photo, ` +
            `at most ${digits(result.largest_change_8bit)} in one place`,
        tellCost(result),
      ]
        .filter(Boolean)
        .join("; ") + ".";
    const body = box("attack-metrics");
    body.replaceChildren();
    for (const metric of result.metrics) {
      const row = add(body, "tr");
      add(row, "th", metric.title).scope = "row";
      add(row, "td", metric.attacked === null ? "none" : digits(metric.attacked));
      add(row, "td", metric.two_seeds === null ? "none" : digits(metric.two_seeds));
      add(row, "td", metric.higher_is_more_robust ? "higher" : "lower");
    }
    find("attack-photo", HTMLAnchorElement).href = result.files.photo;
    find("attack-json", HTMLAnchorElement).href = result.files.json;
    box("attack-result").hidden = false;
  }
}

/**
 * @param {JobResult} result
 * @returns {Promise<Attacked | null>}
 */
async function loadAttack(result) {
  if (result.kind !== "attack") return null;
  const [before, after, attacked] = await Promise.all([
    fetchBytes(result.files.before).then(decodeMap),
    fetchBytes(result.files.after).then(decodeMap),
    fetchPicture(result.files.photo),
  ]);
  return { result, before, after, attacked };
}
