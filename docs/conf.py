"""The Sphinx settings of the site: ``python -m sphinx -W -q -b html docs build/docs``."""

import sys
from pathlib import Path

import rlx

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "rlx"
author = "the rlx authors"
copyright = author
version = release = rlx.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "op_pages",
    "flag_table",
]
# Pages of the operations are made when the site is built: docs/_ext/op_pages.py. Those in reference/plain are for clones.
exclude_patterns = ["_ext", "_static", "reference/plain"]
nitpicky = True
# Types of other packages, and types of rlx that have no page of their own.
nitpick_ignore_regex = [
    ("py:.*", r"(numpy|np|collections|typing|pathlib|argparse|types|tokenizers)(\..+)?"),
    (
        "py:.*",
        r"rlx\.(\w+\.)+\w+|CalibrationError|GraphCost|LoweredModule|RunSlots|RunDict|DynamicRows|Recorder|Source|TryLock|KernelLimitError",
    ),
]

myst_enable_extensions = ["colon_fence", "deflist", "attrs_inline"]
myst_heading_anchors = 4
myst_links_external_new_tab = False

toc_object_entries_show_parents = "hide"
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the signature and the docstring's "Args" say it
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_param = False
napoleon_use_ivar = True

html_theme = "furo"
html_title = "rlx"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#1a7f64", "color-brand-content": "#1a7f64"},
    "dark_css_variables": {"color-brand-primary": "#4cc9a4", "color-brand-content": "#4cc9a4"},
}
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True
