"use strict";
// What all pages share: data, elements, pictures, and light or dark.

const readData = () => unpack(document.getElementById("data").textContent);

async function unpack(text) {
  const packed = atob(text);
  const bytes = Uint8Array.from(packed, (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

// An element with properties and children; words are never read as HTML.
function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in element) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

const byId = (id) => document.getElementById(id);

// A picture is parsed as a document of its own, of which only drawing elements are taken over.
const DRAWING = new Set(
  ("svg g path rect circle ellipse line polyline polygon text tspan title desc defs style image use " +
    "clipPath linearGradient radialGradient stop symbol marker").split(" "),
);
function parsePicture(text) {
  const picture = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
  for (const element of [picture, ...picture.querySelectorAll("*")]) {
    if (!DRAWING.has(element.localName)) element.remove();
    for (const { name, value } of [...element.attributes]) {
      const refers = /href$/i.test(name) && !/^(#|data:image\/png)/.test(value);
      if (/^on/i.test(name) || refers) element.removeAttribute(name);
    }
  }
  return document.importNode(picture, true);
}

function showFacts(data) {
  byId("title").textContent = data.title;
  byId("facts").replaceChildren(
    ...data.facts.map(([what, is, kind = ""]) => make("div", {}, make("dt", {}, what), make("dd", { className: kind }, is))),
  );
}

function setUpTheme(button) {
  const root = document.documentElement;
  const isDark = () =>
    root.dataset.theme
      ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
  const show = () => (button.textContent = isDark() ? "Light" : "Dark");
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    show();
  });
  show();
}
