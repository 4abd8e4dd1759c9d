// Typeset the formulas that the Markdown extension has marked, and those of notebooks between dollar signs.
document.addEventListener("DOMContentLoaded", () => {
  const delimiters = [
    { left: "\\(", right: "\\)", display: false },
    { left: "\\[", right: "\\]", display: true },
    { left: "$", right: "$", display: false },
  ];
  for (const element of document.querySelectorAll(".arithmatex, .jp-RenderedMarkdown")) {
    renderMathInElement(element, { delimiters, throwOnError: false });
  }
});
