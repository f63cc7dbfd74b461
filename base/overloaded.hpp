#pragma once

namespace stretto {

// A visitor for std::visit made of lambdas: std::visit(Overloaded{[](const A&) {…}, [](const B&) {…}}, variant).
template <class... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};
template <class... Fs>
Overloaded(Fs...) -> Overloaded<Fs...>;

}  // namespace stretto
