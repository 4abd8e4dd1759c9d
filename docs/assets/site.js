// Typeset the formulas that the Markdown extension has marked, and those in the text of notebooks.
document.addEventListener("DOMContentLoaded", () => {
  for (const element of document.querySelectorAll(".arithmatex, .jp-MarkdownOutput")) {
    renderMathInElement(element, {
      delimiters: [
        { left: "\\(", right: "\\)", display: false },
        { left: "\\[", right: "\\]", display: true },
        ...(element.matches(".arithmatex") ? [] : [{ left: "$", right: "$", display: false }]),
      ],
      throwOnError: false,
    });
  }
});
