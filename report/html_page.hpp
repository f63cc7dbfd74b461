#pragma once
#include <string>
#include <vector>

namespace stretto {

// Returns one self-contained HTML file: style and, where the body has one, script are in it. Title and the lines under
// it are text; the body is HTML.
std::string html_page(const std::string& title, const std::vector<std::string>& about, const std::string& body);

// Returns a <p> of a class of report/html/style.css.
std::string html_paragraph(const std::string& text, const char* css);

}  // namespace stretto
