/** Puts the page together: asks what the server has, restores the settings of the link, explains the first photo. */

import { fetchAbout } from "./api.js";
import { setUpAbout } from "./about.js";
import { AttackTab } from "./attack.js";
import { CertificateTab } from "./certificate.js";
import { CompareTab } from "./compare.js";
import { box, debounce } from "./dom.js";
import { ExplainTab } from "./explain.js";
import { readLink, writeLink } from "./link.js";
import { tell, tellProblem } from "./notice.js";
import { setUpOptions } from "./options.js";
import { setUpPhotos } from "./photos.js";
import { Store } from "./settings.js";
import { Subject } from "./subject.js";
import { setUpTabs } from "./tabs.js";

async function open() {
  const store = new Store(await fetchAbout());
  const subject = new Subject(store);
  follow(store, subject, window.location.hash);
  setUpTabs(store);
  setUpOptions(store);
  setUpPhotos(store, subject);
  const explain = new ExplainTab(store, subject);
  new CompareTab(store, subject);
  new AttackTab(store, subject);
  new CertificateTab(store, subject);
  setUpAbout(store, subject);

  const showSubject = () => {
    for (const place of document.querySelectorAll(".subject-sentence")) place.textContent = subject.sentence;
  };
  subject.listen(showSubject);
  store.listen(showSubject);
  showSubject();

  // Browsers allow only so many changes of the address in a minute.
  const write = debounce(() => {
    window.history.replaceState(null, "", `#${writeLink(store.values, store.about)}`);
  }, 250);
  store.listen(write);
  write();
  window.addEventListener("hashchange", () => {
    follow(store, subject, window.location.hash);
    subject.changed();
  });
  explain.refresh();
}

/**
 * Takes over the settings of a link.
 *
 * @param {Store} store
 * @param {Subject} subject
 * @param {string} hash
 */
function follow(store, subject, hash) {
  const { settings, unknown } = readLink(hash, store.about);
  // A link never names a photo of one's own; one that names none leaves it where it is.
  const named = new URLSearchParams(hash.replace(/^#/, "")).has("photo");
  if (subject.upload && !named) settings.photo = null;
  else subject.upload = null;
  store.change(settings);
  if (unknown.length > 0)
    tell(`This server does not know ${unknown.join(", ")} of the link; the default is taken instead.`, "link");
}

open().catch((problem) => {
  document.body.dataset.state = "failed";
  box("status-text").textContent = "The page could not start.";
  tellProblem(problem);
});
