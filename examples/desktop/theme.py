"""Colours of the window, light and dark, and of the spectrogram."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor, QGuiApplication, QPalette


@dataclass(frozen=True)
class Theme:
    """Names of colours, as ``#rrggbb``."""

    window: str
    panel: str
    line: str
    text: str
    faint: str
    accent: str
    good: str


THEMES = {
    "light": Theme("#f3f4f7", "#ffffff", "#d5d9e2", "#1c2230", "#667085", "#2f6bde", "#17965f"),
    "dark": Theme("#14171f", "#1c212c", "#323a4a", "#e8ecf4", "#98a2b6", "#6ea0ff", "#3fcf8e"),
}
# The spectrogram from silent to loud: position, red, green, blue.
HEAT = np.array(
    [
        [0.0, 10, 12, 32],
        [0.25, 62, 24, 110],
        [0.5, 168, 44, 112],
        [0.75, 240, 112, 64],
        [0.92, 252, 196, 96],
        [1.0, 254, 246, 210],
    ]
)


def chosen(name: str) -> Theme:
    """The theme of this name; "system" asks the desktop."""
    if name == "system":
        dark = QGuiApplication.styleHints().colorScheme() == Qt.ColorScheme.Dark
        name = "dark" if dark else "light"
    return THEMES[name]


def heat_table() -> list[int]:
    """256 colours for an indexed image."""
    position = np.linspace(0, 1, 256)
    red, green, blue = (np.interp(position, HEAT[:, 0], HEAT[:, k]) for k in (1, 2, 3))
    return [QColor(int(r), int(g), int(b)).rgb() for r, g, b in zip(red, green, blue)]


def palette(theme: Theme) -> QPalette:
    """The theme for Qt's own widgets."""
    result, role = QPalette(), QPalette.ColorRole
    table = {
        theme.window: (role.Window,),
        theme.panel: (role.Base, role.Button, role.ToolTipBase, role.AlternateBase),
        theme.text: (role.WindowText, role.Text, role.ButtonText, role.ToolTipText),
        theme.accent: (role.Highlight,),
        theme.faint: (role.PlaceholderText,),
        theme.panel if theme is THEMES["dark"] else "#ffffff": (role.HighlightedText,),
    }
    for colour, roles in table.items():
        for item in roles:
            result.setColor(item, QColor(colour))
    for item in (role.Text, role.ButtonText, role.WindowText):
        result.setColor(QPalette.ColorGroup.Disabled, item, QColor(theme.faint))
    return result


def style_sheet(theme: Theme) -> str:
    """Returns the style sheet, for settings that a palette lacks."""
    return f"""
        QLabel#title {{ font-size: 17px; font-weight: 600; }}
        QLabel#faint {{ color: {theme.faint}; }}
        QLabel#error {{ color: #d64545; }}
        QComboBox {{ padding: 4px 8px; border: 1px solid {theme.line}; border-radius: 6px;
                     background: {theme.panel}; min-height: 20px; }}
        QComboBox::drop-down {{ border: 0; width: 18px; }}
        QProgressBar {{ border: 0; border-radius: 3px; background: {theme.line}; max-height: 6px; }}
        QProgressBar::chunk {{ border-radius: 3px; background: {theme.accent}; }}
    """
