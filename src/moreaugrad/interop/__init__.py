"""Beside other libraries: methods from Captum and from functions, maps for Quantus, callbacks for trainers."""
