/** Taking photos: chosen, dropped, pasted, or one of the examples. */

/** @import { Store } from "./settings.js" */
/** @import { Subject } from "./subject.js" */

import { addressOfThumbnail, uploadPhoto } from "./api.js";
import { add, box, button, input } from "./dom.js";
import { clearNotice, guarded, tell } from "./notice.js";

/**
 * @param {Store} store
 * @param {Subject} subject
 */
export function setUpPhotos(store, subject) {
  const { about } = store;
  const drop = button("drop");
  const chooser = input("photo-input");
  let uploads = 0;

  /** @param {File | null | undefined} file */
  async function take(file) {
    if (!file) return;
    if (about.read_only) return tell("This server shows its examples only and takes no other photos.");
    if (file.size > about.limits.bytes) {
      return tell(`The file has ${megabytes(file.size)}; this server takes at most ${megabytes(about.limits.bytes)}.`);
    }
    clearNotice();
    const own = ++uploads;
    drop.dataset.busy = "yes";
    try {
      const photo = await uploadPhoto(file);
      if (own !== uploads) return; // another photo was chosen meanwhile
      subject.upload = { ...photo, name: file.name || "pasted photo" };
      store.change({ photo: null, target: null });
      subject.changed();
    } finally {
      if (own === uploads) delete drop.dataset.busy;
    }
  }

  box("upload").hidden = about.read_only;
  drop.addEventListener("click", () => chooser.click());
  chooser.addEventListener(
    "change",
    guarded(async () => {
      const file = chooser.files?.[0];
      try {
        await take(file);
      } finally {
        chooser.value = ""; // the same file may be chosen again
      }
    }),
  );
  document.addEventListener(
    "paste",
    guarded((event) => take(event.clipboardData?.files[0])),
  );
  // A photo that misses the zone is taken all the same; the browser would leave the page to show it.
  document.addEventListener("dragover", (event) => {
    if (isForField(event)) return;
    event.preventDefault();
    if (event.dataTransfer?.types.includes("Files")) drop.dataset.over = "yes";
  });
  document.addEventListener("dragleave", (event) => {
    if (event.relatedTarget === null) delete drop.dataset.over;
  });
  document.addEventListener("drop", (event) => {
    if (isForField(event)) return;
    event.preventDefault();
    delete drop.dataset.over;
    const file = event.dataTransfer?.files[0];
    if (!file) return tell("That was no file. Drop the file of a photo, or copy the photo and paste it.");
    guarded(take)(file);
  });

  setUpExamples(store, subject, () => {
    uploads++;
    delete drop.dataset.busy;
  });
}

/**
 * Whether something dropped is a text for a field to write in.
 *
 * @param {DragEvent} event
 */
function isForField({ dataTransfer, target }) {
  const field = target instanceof Element && target.closest("input[type=search], input[type=number]");
  return field && !dataTransfer?.types.includes("Files");
}

/**
 * @param {Store} store
 * @param {Subject} subject
 * @param {() => void} forgetUploads
 */
function setUpExamples(store, subject, forgetUploads) {
  const menu = box("examples");
  const buttons = store.about.examples.map((example) => {
    const choice = add(menu, "button", undefined, "example");
    choice.type = "button";
    choice.dataset.photo = example.id;
    const picture = add(choice, "img");
    picture.src = addressOfThumbnail(example.id);
    picture.alt = "";
    add(choice, "span", example.name);
    choice.addEventListener("click", () => {
      forgetUploads(); // one on its way would replace the example
      const changes = subject.photo !== example.id;
      subject.upload = null;
      store.change({ photo: example.id, ...(changes ? { target: null } : {}) });
      subject.changed();
    });
    return choice;
  });

  function show() {
    // One example alone needs no menu, except as the way back from a photo of one's own.
    menu.hidden = buttons.length < (subject.upload ? 1 : 2);
    for (const each of buttons) each.setAttribute("aria-pressed", String(each.dataset.photo === subject.photo));
    const size = subject.upload ?? store.about.examples.find(({ id }) => id === subject.photo);
    box("photo-name").textContent = size
      ? `${subject.photoName}, ${size.width} \u00d7 ${size.height} pixels`
      : "Choose a photo to begin.";
  }
  subject.listen(show);
  store.listen((changed) => changed.has("photo") && show());
  show();
}

/** @param {number} bytes */
const megabytes = (bytes) => `${(bytes / 1e6).toFixed(1)} MB`;
