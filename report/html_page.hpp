#pragma once
#include <string>
#include <vector>

namespace stretto {

// One HTML file that needs nothing else and loads nothing: style and, where the body has one, script are in it. Title
// and lines under it are text; the body is HTML.
std::string html_page(const std::string& title, const std::vector<std::string>& about, const std::string& body);

// A <p> of that class of report/html/style.css.
std::string html_paragraph(const std::string& text, const char* css);

}  // namespace stretto
