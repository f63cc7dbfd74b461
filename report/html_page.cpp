#include "report/html_page.hpp"

#include <fmt/format.h>

#include "report/colours.hpp"
#include "report/html_assets.hpp"
#include "report/html_text.hpp"

namespace stretto {

std::string html_paragraph(const std::string& text, const char* css) {
  return fmt::format("<p class=\"{}\">{}</p>\n", css, html_escaped(text));
}

std::string html_page(const std::string& title, const std::vector<std::string>& about, const std::string& body) {
  std::string html =
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
      "script-src 'unsafe-inline'\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n";
  html += fmt::format("<title>{}</title>\n<style>\n{}{}</style>\n</head>\n<body>\n<main>\n", html_escaped(title),
                      kHtmlStyle, palette_css());
  html += fmt::format("<header>\n<h1>{}</h1>\n", html_escaped(title));
  for (const std::string& line : about) html += html_paragraph(line, "about");
  return html + "</header>\n" + body + "</main>\n</body>\n</html>\n";
}

}  // namespace stretto
