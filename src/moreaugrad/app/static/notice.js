/** The one place where errors are told: a sentence in an alert region, with a button that takes it away. */

import { add, box } from "./dom.js";

/** What an error is about, so that it goes when its cause does. @typedef {"job" | "link"} Topic */

/**
 * @param {string} sentence
 * @param {Topic} [topic]
 */
export function tell(sentence, topic = "job") {
  const region = box("error");
  region.replaceChildren();
  region.dataset.topic = topic;
  add(region, "p", sentence);
  const dismiss = add(region, "button", "Dismiss");
  dismiss.type = "button";
  dismiss.addEventListener("click", () => clearNotice());
}

/** @param {Topic} [topic] only what is about this */
export function clearNotice(topic) {
  const region = box("error");
  if (topic === undefined || region.dataset.topic === topic) region.replaceChildren();
}

/**
 * The sentence of any thrown thing.
 *
 * @param {unknown} problem
 * @returns {string}
 */
export function sentenceOf(problem) {
  return problem instanceof Error && problem.message ? problem.message : String(problem);
}

/** @param {unknown} problem */
export function tellProblem(problem) {
  tell(sentenceOf(problem));
}

/**
 * An event handler that tells its errors instead of leaving them to the console.
 *
 * @template {unknown[]} Arguments
 * @param {(...given: Arguments) => unknown} action
 * @returns {(...given: Arguments) => void}
 */
export function guarded(action) {
  return (...given) => {
    Promise.resolve()
      .then(() => action(...given))
      .catch(tellProblem);
  };
}
