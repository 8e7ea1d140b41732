/** The tab About this map: the parts of its text that depend on the server and on the map that is shown. */

/** @import { Store } from "./settings.js" */
/** @import { Subject } from "./subject.js" */

import { add, box, find } from "./dom.js";
import { capitalise, nameClass, titleOfMethod } from "./words.js";

/**
 * @param {Store} store
 * @param {Subject} subject
 */
export function setUpAbout(store, subject) {
  const { about } = store;
  const list = box("about-methods");
  for (const method of about.methods) {
    add(list, "dt", titleOfMethod(method.name));
    add(list, "dd", `${capitalise(method.summary)}.`);
  }
  // Only a click follows it; nothing is loaded from there.
  if (about.docs && /^https?:/.test(about.docs)) {
    find("docs", HTMLAnchorElement).href = about.docs;
    box("about-docs").hidden = false;
  }
  box("about-version").textContent = `moreaugrad ${about.version}`;

  function show() {
    const { result } = subject;
    const title = titleOfMethod(store.method.name);
    box("about-now").textContent = result
      ? `The map shown under Explain is by ${titleOfMethod(result.method)}, of ${subject.photoName}, for ` +
        `${nameClass(result.label, result.target)}. ${result.known ?? ""}`
      : `The method chosen under Explain is ${title}: ${store.method.summary}.`;
  }
  subject.listen(show);
  store.listen((changed) => changed.has("method") && show());
  show();
}
