// What every page has: the theme, and all questions open on paper.
{
  const root = document.documentElement;
  const themes = [["", "Auto"], ["light", "Light"], ["dark", "Dark"]];
  const box = document.getElementById("theme");
  const button = document.createElement("button");
  let current = 0;
  const show = () => {
    const [value, name] = themes[current];
    if (value) root.dataset.theme = value;
    else delete root.dataset.theme;
    button.textContent = `Theme: ${name}`;
  };
  button.type = "button";
  button.addEventListener("click", () => {
    current = (current + 1) % themes.length;
    show();
  });
  show();
  box.append(button);
  box.hidden = false;

  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    for (const one of opened) one.open = true;
  });
  addEventListener("afterprint", () => {
    for (const one of opened) one.open = false;
  });
}
