/** The tab Explain: asks for the map that the settings describe, and shows it as it comes. */

/** @import { ExplainRequest, ExplainResult } from "./types.js" */
/** @import { Settings, Store } from "./settings.js" */
/** @import { Subject } from "./subject.js" */

import { addressOfCrop, fetchBytes, fetchPicture } from "./api.js";
import { ClassChooser } from "./classes.js";
import { copyText } from "./clipboard.js";
import { box, button, debounce, find } from "./dom.js";
import { JobPlace } from "./jobs.js";
import { addressOfPage } from "./link.js";
import { decodeMap, SaliencyMap } from "./mapdata.js";
import { clearNotice, guarded, tellProblem } from "./notice.js";
import { showBar, tellBusy, tellProgress, tellWaiting } from "./panel.js";
import { DEFAULT_CELLS, optionsOf, SOLVED } from "./settings.js";
import { ShownMap } from "./shown.js";
import { digits, nameClass, percent, tellCost, titleOfMethod } from "./words.js";

/** @typedef {"waiting" | "running" | "done" | "failed" | "stopped"} State */

export class ExplainTab {
  #place = new JobPlace();
  #classes;
  #shown;
  /** The job of the map that is shown or computed, and the photo that is shown, as text. */
  #wanted = "";
  #cropWanted = "";
  #bar = find("progress", HTMLProgressElement);
  /** Slower than a hand that moves through a menu, so that it starts one job. */
  #soon = debounce(() => this.refresh(), 200);

  /**
   * @param {Store} store
   * @param {Subject} subject
   */
  constructor(store, subject) {
    this.store = store;
    this.subject = subject;
    this.#classes = new ClassChooser(store);
    this.#shown = new ShownMap(store, () => {
      store.change({ sparsity: store.values.share }); // the share shown is then the one that is solved
    });
    store.listen((changed) => this.#hear(changed));
    subject.listen(() => this.#soon());
    button("stop").addEventListener("click", () => this.#place.stop());
    button("again").addEventListener("click", () => this.refresh(true));
    this.#listenToCopies();
    window.addEventListener("pageshow", (event) => {
      // Left while it ran, the job was stopped; on the way back it starts again.
      if (event.persisted && (this.state === "running" || this.state === "waiting")) this.refresh(true);
    });
  }

  /** @param {Set<keyof Settings>} changed */
  #hear(changed) {
    if (changed.has("model")) this.#classes.showModel();
    if (changed.has("target") && this.store.values.target !== null)
      this.#classes.setExplained(this.store.values.target);
    if (SOLVED.some((key) => changed.has(key))) this.#soon();
  }

  #listenToCopies() {
    /** @param {string} text @param {string} said */
    const copy = guarded(async (/** @type {string} */ text, /** @type {string} */ said) => {
      await copyText(text);
      box("copied").textContent = said;
    });
    button("copy-link").addEventListener("click", () =>
      copy(addressOfPage(this.store.values, this.store.about), "The link is copied."),
    );
    button("copy-command").addEventListener("click", () =>
      copy(box("command").textContent ?? "", "The command is copied."),
    );
    button("copy-python").addEventListener("click", () =>
      copy(box("python").textContent ?? "", "The Python lines are copied."),
    );
  }

  get state() {
    return /** @type {State} */ (document.body.dataset.state);
  }

  /** @param {State} state */
  #setState(state) {
    document.body.dataset.state = state;
    const running = state === "waiting" || state === "running";
    const ended = state === "stopped" || state === "failed";
    const focused = document.activeElement === button("stop") || document.activeElement === button("again");
    box("running").hidden = !running;
    button("again").hidden = !ended;
    if (focused) box(running ? "stop" : ended ? "again" : "stage").focus(); // a hidden button loses the focus
  }

  /** @returns {ExplainRequest | null} */
  #request() {
    const { photo } = this.subject;
    if (photo === null) return null;
    const { about, values, method } = this.store;
    const options = optionsOf(about, values, method);
    return { kind: "explain", photo, model: values.model, method: method.name, target: values.target, options };
  }

  /**
   * Computes what the settings describe, unless that is what is shown already.
   *
   * @param {boolean} [again] also then
   */
  refresh(again = false) {
    const request = this.#request();
    if (!request) {
      box("status-text").textContent = "Choose a photo to begin.";
      return;
    }
    const wanted = JSON.stringify(request);
    if (wanted === this.#wanted && !again) return;
    this.#wanted = wanted;
    clearNotice("job");
    this.#showCrop(request.photo, request.model);
    void this.#run(request, wanted);
  }

  /**
   * Shows the photo as the network sees it, without waiting for the map.
   *
   * @param {string} photo
   * @param {string} model
   */
  #showCrop(photo, model) {
    const address = addressOfCrop(photo, model);
    if (address === this.#cropWanted) return;
    this.#cropWanted = address;
    this.subject.renew();
    this.#shown.clear();
    this.#classes.clear();
    box("take").hidden = true;
    box("known").textContent = box("facts").textContent = "";
    fetchPicture(address).then(
      (crop) => {
        if (address !== this.#cropWanted) return;
        this.subject.crop = crop;
        this.#shown.stage.setPhoto(crop);
        this.subject.changed();
      },
      (problem) => {
        if (address !== this.#cropWanted) return;
        this.#cropWanted = ""; // the next try asks for it again
        tellProblem(problem);
      },
    );
  }

  /**
   * @param {ExplainRequest} request
   * @param {string} wanted
   */
  async #run(request, wanted) {
    this.#setState("waiting");
    box("status-text").textContent = "Waiting for the server …";
    box("steps").textContent = "";
    showBar(this.#bar, null);
    this.#shown.markEarlier();
    // What is told of the map before would be wrong of the one that comes.
    box("known").textContent = box("facts").textContent = "";
    box("take").hidden = true;
    const begin = () => {
      if (this.state === "running") return;
      this.#setState("running");
      box("status-text").textContent = "Computing the map …";
    };
    try {
      const outcome = await this.#place.run(request, {
        waiting: (ahead) => (box("status-text").textContent = tellWaiting(ahead)),
        busy: (seconds, attempt) => (box("status-text").textContent = tellBusy(seconds, attempt)),
        classes: (top) => {
          begin();
          this.#classes.setTop(top);
          this.#classes.setExplained(request.target ?? top[0]?.target ?? null);
        },
        progress: (progress) => {
          begin();
          showBar(this.#bar, progress);
          box("steps").textContent = tellProgress(progress);
        },
        preview: (preview) => {
          begin();
          this.#shown.setPreview(preview);
        },
      });
      if (outcome.state === "replaced" || wanted !== this.#wanted) return;
      if (outcome.state === "stopped") return this.#end("stopped", "Stopped.");
      if (outcome.result.kind === "explain") await this.#show(outcome.result, request, wanted);
    } catch (problem) {
      if (wanted !== this.#wanted) return;
      this.#end("failed", "This did not work.");
      tellProblem(problem);
    }
  }

  /**
   * Ends without a new map; an earlier one stays, and is named.
   *
   * @param {State} state
   * @param {string} sentence
   */
  #end(state, sentence) {
    const { result } = this.subject;
    const method = result && titleOfMethod(result.method);
    const earlier = result ? `The map is still ${method} for ${nameClass(result.label, result.target)}.` : "";
    this.#shown.endPreview();
    this.#setState(state);
    box("status-text").textContent = `${sentence} ${earlier}`.trim();
  }

  /**
   * @param {ExplainResult} result
   * @param {ExplainRequest} request
   * @param {string} wanted
   */
  async #show(result, request, wanted) {
    const file = decodeMap(await fetchBytes(result.files.map));
    if (wanted !== this.#wanted) return; // another one was asked for meanwhile
    const groups = this.store.method.groups ? (request.options.groups ?? DEFAULT_CELLS) : null;
    this.#shown.setMap(new SaliencyMap(file, result.solved_share, groups), result.never_negative);
    this.#classes.setExplained(result.target, result.label);
    const named = nameClass(result.label, result.target);
    box("stage").setAttribute(
      "aria-label",
      `Photo on the left of the divider, ${titleOfMethod(result.method)} map for ${named} on the right`,
    );
    this.#tell(result, named);
    this.subject.result = result;
    this.#setState("done");
    this.subject.changed();
  }

  /**
   * @param {ExplainResult} result
   * @param {string} named
   */
  #tell(result, named) {
    const score = result.score === null ? "" : `, score ${digits(result.score)}`;
    box("status-text").textContent = `${titleOfMethod(result.method)} for ${named}${score}.`;
    box("known").textContent = result.known ?? "";
    box("facts").textContent = [
      `${percent(result.kept)} of the entries are not zero`,
      tellCost(result),
      result.seed === null ? "" : `seed ${result.seed}`,
    ]
      .filter(Boolean)
      .join(", ");
    for (const [id, address] of [
      ["download-picture", result.files.picture],
      ["download-npz", result.files.npz],
      ["download-json", result.files.json],
    ]) {
      if (id && address) find(id, HTMLAnchorElement).href = address;
    }
    box("command").textContent = result.command;
    box("python").textContent = result.python;
    box("copied").textContent = "";
    box("link-note").hidden = this.subject.upload === null;
    box("take").hidden = false;
  }
}
