// For visitors of VisitFields that look at a few kinds of fields: a class of
// this one ignores the kinds that it does not declare itself.
#pragma once

namespace pipewright {

class IgnoredFields {
 public:
  template <typename... Rest>
  void Int(const Rest&...) {}
  template <typename... Rest>
  void Ints(const Rest&...) {}
  template <typename... Rest>
  void Real(const Rest&...) {}
  template <typename... Rest>
  void Reals(const Rest&...) {}
  template <typename... Rest>
  void Text(const Rest&...) {}
  template <typename... Rest>
  void Texts(const Rest&...) {}
  template <typename... Rest>
  void Bool(const Rest&...) {}
  template <typename... Rest>
  void Quantity(const Rest&...) {}
  template <typename... Rest>
  void Quantities(const Rest&...) {}
  template <typename... Rest>
  void Section(const Rest&...) {}
  template <typename... Rest>
  void Choice(const Rest&...) {}
  template <typename... Rest>
  void Pairs(const Rest&...) {}
};

}  // namespace pipewright
