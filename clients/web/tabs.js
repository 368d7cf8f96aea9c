// Panels beside one another where there is room; one at a time, behind tabs, where there is not.

const NARROW = "(max-width: 1119px)";

export class Tabs {
  #narrow = matchMedia(NARROW);

  constructor(list) {
    this.tabs = [...list.children];
    this.panels = this.tabs.map((tab) => document.getElementById(tab.getAttribute("aria-controls")));
    this.labels = this.panels.map((panel) => panel.getAttribute("aria-labelledby"));
    this.tabs.forEach((tab, index) => {
      tab.addEventListener("click", () => this.#choose(index));
      tab.addEventListener("keydown", (event) => this.#key(event, index));
    });
    this.#narrow.addEventListener("change", () => this.#apply());
    this.#choose(0);
    this.#apply();
  }

  #apply() {
    this.panels.forEach((panel, index) => {
      if (this.#narrow.matches) panel.setAttribute("role", "tabpanel");
      else panel.removeAttribute("role");
      panel.setAttribute("aria-labelledby", this.#narrow.matches ? this.tabs[index].id : this.labels[index]);
    });
  }

  #choose(index) {
    this.tabs.forEach((tab, other) => {
      tab.setAttribute("aria-selected", String(other === index));
      tab.tabIndex = other === index ? 0 : -1;
      this.panels[other].classList.toggle("chosen", other === index);
    });
  }

  #key(event, index) {
    const count = this.tabs.length;
    const to = { ArrowRight: index + 1, ArrowLeft: index - 1, Home: 0, End: count - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    this.#choose((to + count) % count);
    this.tabs[(to + count) % count].focus();
  }
}
