"""A Space for Hugging Face: drop a photo, choose a class and how much of the map to keep.

In the Space's requirements.txt: moreaugrad. Gradio itself comes with the Space (pip install gradio elsewhere).
"""

from __future__ import annotations

from typing import Any

import gradio as gr

import moreaugrad as mg

MODEL = mg.load_model("efficientnet_lite0")
METHODS = ["sparse_moreau", "group_sparse_moreau", "moreau", "smoothgrad", "gradient"]


def explain(photo: Any, method: str, name: str, share: float, quality: str, progress: Any = gr.Progress()) -> Any:  # noqa: B008
    """The picture of a map, and what is known of it."""
    if photo is None:
        raise gr.Error("Drop a photo first.")
    options: dict[str, Any] = {"budget": quality} if "moreau" in method else {}
    options |= {"sparsity": share / 100} if "sparse" in method else {}
    try:
        found = mg.explain(MODEL, photo, method, target=name.strip() or None, show_progress=False, **options)
    except ValueError as error:
        raise gr.Error(str(error)) from None
    progress(1.0)
    return found.show(), repr(found)


with gr.Blocks(title="moreaugrad") as page:
    gr.Markdown("# Sparse and robust saliency maps\nDrop a photo and see which pixels carry its class.")
    with gr.Row():
        with gr.Column():
            photo = gr.Image(type="pil", label="photo")
            method = gr.Dropdown(METHODS, value=METHODS[0], label="method")
            name = gr.Textbox(label="class, by name or number; empty: the predicted one")
            share = gr.Slider(0.5, 50, value=5, step=0.5, label="share of the map to keep, in percent")
            quality = gr.Radio(["fast", "balanced", "best"], value="fast", label="quality")
            ask = gr.Button("Explain", variant="primary")
        with gr.Column():
            picture, known = gr.Plot(label="map"), gr.Textbox(label="what is known of it", lines=3)
    ask.click(explain, [photo, method, name, share, quality], [picture, known])

if __name__ == "__main__":
    page.queue(max_size=30).launch()
