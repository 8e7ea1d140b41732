/** What every running job shows: how far it is, and what it waits for. And the run and stop buttons of a tab. */

/** @import { JobRequest, JobResult, Progress } from "./types.js" */
/** @import { Listener, Outcome } from "./jobs.js" */

import { box, button, find } from "./dom.js";
import { JobPlace } from "./jobs.js";
import { sentenceOf, tell } from "./notice.js";
import { counted, duration } from "./words.js";

const TRIES = 5;

/** @param {number} ahead */
export const tellWaiting = (ahead) =>
  ahead > 0 ? `Waiting: ${counted(ahead, "other job")} first.` : "Waiting for the server …";

/**
 * @param {number} seconds
 * @param {number} attempt
 */
export const tellBusy = (seconds, attempt) =>
  `Waiting: the server has no room now. Trying again in ${Math.round(seconds)} s (${attempt} of ${TRIES}).`;

/** @param {Progress} progress */
export function tellProgress({ step, total, seconds }) {
  const steps = total > 0 ? `step ${step} of ${total}, ` : step > 0 ? `step ${step}, ` : "";
  return steps + duration(seconds);
}

/**
 * @param {HTMLProgressElement} bar
 * @param {Progress | null} progress null where nothing is known yet
 */
export function showBar(bar, progress) {
  if (progress === null || progress.total <= 0) {
    bar.removeAttribute("value"); // the browser shows that it works
    return;
  }
  bar.max = progress.total;
  bar.value = progress.step;
}

/** The buttons and the line of a tab whose job is started by hand. */
export class JobPanel {
  #place = new JobPlace();
  /** @type {HTMLProgressElement} */
  #bar;
  /** Counts runs and resets: a run that is not the newest has nothing to show any more. */
  #newest = 0;
  /** Why no job can be started here; empty where one can. */
  #reason = "";

  /** @param {string} prefix of the ids in the page */
  constructor(prefix) {
    this.prefix = prefix;
    this.run = button(`${prefix}-run`);
    this.stop = button(`${prefix}-stop`);
    this.#bar = find(`${prefix}-progress`, HTMLProgressElement);
    this.stop.addEventListener("click", () => this.#place.stop());
  }

  /** Stops what runs and forgets what was said, for it is about another photo. */
  reset() {
    this.#newest++;
    this.#place.stop();
    this.showRunning(false);
    this.say(this.#reason);
  }

  /** @param {string} reason why no job can be started here; an empty one lets them start */
  refuse(reason) {
    this.#reason = reason;
    this.run.disabled = reason !== "";
    this.reset();
  }

  /** @param {string} text */
  say(text) {
    box(`${this.prefix}-status`).textContent = text;
  }

  /** @param {boolean} running */
  showRunning(running) {
    if (!running && document.activeElement === this.stop) this.run.focus(); // a hidden button loses the focus
    this.stop.hidden = this.#bar.hidden = !running;
    if (running) showBar(this.#bar, null);
  }

  /**
   * Runs a job and shows how far it is; throws what goes wrong.
   *
   * @param {JobRequest} job
   * @param {string} what put before each line
   * @param {Listener} [more]
   * @returns {Promise<Outcome>}
   */
  follow(job, what = "", more = {}) {
    showBar(this.#bar, null);
    this.say(`${what}Waiting for the server …`);
    return this.#place.run(job, {
      ...more,
      waiting: (ahead) => this.say(what + tellWaiting(ahead)),
      busy: (seconds, attempt) => this.say(what + tellBusy(seconds, attempt)),
      progress: (progress) => {
        showBar(this.#bar, progress);
        this.say(what + tellProgress(progress));
      },
    });
  }

  /**
   * Runs one job from beginning to end. What comes after a reset is not shown.
   *
   * @template T
   * @param {JobRequest} job
   * @param {(result: JobResult) => Promise<T>} load
   * @param {(loaded: T) => void} show
   */
  async runOne(job, load, show) {
    const own = ++this.#newest;
    this.showRunning(true);
    try {
      const outcome = await this.follow(job);
      if (own !== this.#newest || outcome.state === "replaced") return;
      this.showRunning(false);
      if (outcome.state === "stopped") return this.say("Stopped.");
      this.say("Loading the maps …");
      const loaded = await load(outcome.result);
      if (own !== this.#newest) return;
      show(loaded);
      this.say("Done.");
    } catch (problem) {
      if (own !== this.#newest) return;
      this.showRunning(false);
      this.say("This did not work.");
      tell(sentenceOf(problem));
    }
  }
}
