/** Runs jobs: one at a time in each place, the old one deleted before the next one is posted. */

/** @import { JobRequest, JobResult, Preview, Progress, TopClass } from "./types.js" */

import { deleteJob, fetchJob, followJob, postJob, ServerError } from "./api.js";

/**
 * What a caller may hear of its job.
 *
 * @typedef {{waiting?: (ahead: number) => void, busy?: (seconds: number, attempt: number) => void,
 *   classes?: (top: TopClass[]) => void, progress?: (progress: Progress) => void,
 *   preview?: (preview: Preview) => void}} Listener
 *
 * How a job ended. "replaced" is for the caller whose job had to make room: it has nothing more to show.
 * @typedef {{state: "done", result: JobResult} | {state: "stopped"} | {state: "replaced"}} Outcome
 */

const TRIES = 5;

/** The jobs of this page that run, whoever asked for them. */
const running = /** @type {Set<string>} */ (new Set());

// The server also stops a job whose stream is closed; this is for those that have none yet.
window.addEventListener("pagehide", () => {
  for (const id of running) void deleteJob(id);
});

/** A place for one job, such as a tab of the page. */
export class JobPlace {
  /** @type {AbortController | null} */
  #current = null;
  /** @type {Promise<unknown>} */
  #last = Promise.resolve();

  /** Stops the job that runs here, if one does. */
  stop() {
    this.#current?.abort("stopped");
  }

  /**
   * Runs a job in place of the one that runs here. Throws what goes wrong.
   *
   * @param {JobRequest} job
   * @param {Listener} listener
   * @returns {Promise<Outcome>}
   */
  run(job, listener) {
    this.#current?.abort("replaced");
    const own = new AbortController();
    this.#current = own;
    const before = this.#last;
    const outcome = (async () => {
      await before;
      try {
        return await carryOut(job, listener, own.signal);
      } finally {
        if (this.#current === own) this.#current = null;
      }
    })();
    this.#last = outcome.catch(() => {}); // its caller hears of the error
    return outcome;
  }
}

/**
 * @param {AbortSignal} signal
 * @returns {Outcome}
 */
const ended = (signal) => ({ state: signal.reason === "replaced" ? "replaced" : "stopped" });

/**
 * @param {JobRequest} job
 * @param {Listener} listener
 * @param {AbortSignal} signal
 * @returns {Promise<Outcome>}
 */
async function carryOut(job, listener, signal) {
  const id = await postWithPatience(job, listener, signal);
  if (id === null) return ended(signal);
  running.add(id);
  /** @type {Outcome | null} */
  let outcome = null;
  try {
    // A post is not cut off, for then nobody would know the id of the job that it made; so it may end here.
    outcome = signal.aborted ? ended(signal) : await hear(id, listener, signal);
    return outcome;
  } finally {
    if (outcome?.state !== "done") await deleteJob(id); // it may run on, and nobody listens to it any more
    running.delete(id);
  }
}

/**
 * Posts a job; where the queue is full, waits as long as the server says and tries again.
 *
 * @param {JobRequest} job
 * @param {Listener} listener
 * @param {AbortSignal} signal
 * @returns {Promise<string | null>} null where it was stopped before
 */
async function postWithPatience(job, listener, signal) {
  for (let attempt = 1; !signal.aborted; attempt++) {
    try {
      return await postJob(job);
    } catch (problem) {
      if (signal.aborted) break; // nobody waits for it any more
      if (!(problem instanceof ServerError) || problem.status !== 503 || attempt > TRIES) throw problem;
      listener.busy?.(problem.retryAfter, attempt);
      await pause(problem.retryAfter, signal);
    }
  }
  return null;
}

/**
 * @param {string} id
 * @param {Listener} listener
 * @param {AbortSignal} signal
 * @returns {Promise<Outcome>}
 */
async function hear(id, listener, signal) {
  try {
    for await (const { name, data } of followJob(id, signal)) {
      if (signal.aborted) break;
      if (name === "waiting") listener.waiting?.(/** @type {{ahead: number}} */ (data).ahead);
      if (name === "classes") listener.classes?.(/** @type {{top: TopClass[]}} */ (data).top);
      if (name === "progress") listener.progress?.(/** @type {Progress} */ (data));
      if (name === "preview") listener.preview?.(/** @type {Preview} */ (data));
      if (name === "done") return { state: "done", result: /** @type {JobResult} */ (data) };
      if (name === "failed") throw new ServerError(/** @type {{error: string}} */ (data).error, 500);
      if (name === "stopped") return { state: "stopped" };
    }
  } catch (problem) {
    if (signal.aborted) return ended(signal);
    if (problem instanceof ServerError && problem.status !== 0) throw problem;
    // otherwise the connection broke, and the job may be over by now
  }
  return signal.aborted ? ended(signal) : askOnce(id);
}

/**
 * How a job ended whose stream broke off.
 *
 * @param {string} id
 * @returns {Promise<Outcome>}
 */
async function askOnce(id) {
  const report = await fetchJob(id);
  if (report.state === "done" && report.result) return { state: "done", result: report.result };
  if (report.state === "failed" && report.error) throw new ServerError(report.error, 500);
  if (report.state === "stopped") return { state: "stopped" };
  throw new ServerError("The connection to the server broke off. Start again.", 0);
}

/**
 * @param {number} seconds
 * @param {AbortSignal} signal
 * @returns {Promise<void>}
 */
function pause(seconds, signal) {
  return new Promise((resolve) => {
    const timer = window.setTimeout(resolve, 1000 * seconds);
    signal.addEventListener(
      "abort",
      () => {
        clearTimeout(timer);
        resolve();
      },
      { once: true },
    );
  });
}
