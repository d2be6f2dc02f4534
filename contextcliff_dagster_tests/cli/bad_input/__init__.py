"""Bad input over every command: tables by area, and the law that each of their rows is held to."""
