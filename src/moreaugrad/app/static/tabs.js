/** The tabs of the page, by mouse and by keyboard. */

/** @import { Store } from "./settings.js" */

import { box } from "./dom.js";

/** @param {Store} store */
export function setUpTabs(store) {
  const tabs = [...document.querySelectorAll("[role=tab]")].filter((tab) => tab instanceof HTMLElement);
  /** @param {HTMLElement} tab */
  const nameOf = (tab) => tab.id.replace("tab-", "");

  function show() {
    for (const tab of tabs) {
      const chosen = nameOf(tab) === store.values.tab;
      tab.setAttribute("aria-selected", String(chosen));
      tab.tabIndex = chosen ? 0 : -1; // one stop of the Tab key; arrows move inside
      box(`panel-${nameOf(tab)}`).hidden = !chosen;
    }
  }

  tabs.forEach((tab, place) => {
    tab.addEventListener("click", () => store.change({ tab: nameOf(tab) }));
    tab.addEventListener("keydown", (event) => {
      const next = {
        ArrowRight: (place + 1) % tabs.length,
        ArrowLeft: (place + tabs.length - 1) % tabs.length,
        Home: 0,
        End: tabs.length - 1,
      }[event.key];
      const to = next === undefined ? undefined : tabs[next];
      if (!to) return;
      event.preventDefault();
      to.focus();
      store.change({ tab: nameOf(to) });
    });
  });
  store.listen((changed) => changed.has("tab") && show());
  show();
}
