// Result<T> and Error: how every fallible function of Cofferdam reports.
//
// An Error carries a message that gathers context on its way up and, where the failure was a
// system call's, the errno captured on the line that failed. Values, no exceptions: a library's
// exceptions are caught at the seam that calls it.
#pragma once

#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

namespace cofferdam {

class [[nodiscard]] Error {
 public:
  explicit Error(std::string message, int error_number = 0)
      : message_(std::move(message)), errno_(error_number) {}

  // An Error for the errno of the call that just failed: "what: No such file or directory".
  static Error from_errno(std::string_view what) { return from_errno(what, errno); }
  static Error from_errno(std::string_view what, int error_number) {
    return Error(std::string(what) + ": " + std::strerror(error_number), error_number);
  }

  const std::string& message() const { return message_; }
  // The captured errno, 0 when the failure was not a system call's.
  int error_number() const { return errno_; }

  // The same error with "what: " in front; for the way up.
  Error context(std::string_view what) const {
    return Error(std::string(what) + ": " + message_, errno_);
  }

 private:
  std::string message_;
  int errno_ = 0;
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value)
      : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT(google-explicit-constructor)
  Result(Error error)
      : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  // Precondition: ok(). A violated precondition ends the process (std::get throws, noexcept).
  T& value() & noexcept { return std::get<0>(state_); }
  const T& value() const& noexcept { return std::get<0>(state_); }
  T&& value() && noexcept { return std::get<0>(std::move(state_)); }
  T* operator->() noexcept { return &std::get<0>(state_); }
  const T* operator->() const noexcept { return &std::get<0>(state_); }
  T& operator*() & noexcept { return value(); }
  const T& operator*() const& noexcept { return value(); }
  T&& operator*() && noexcept { return std::move(*this).value(); }

  // Precondition: !ok().
  const Error& error() const noexcept { return std::get<1>(state_); }
  Result context(std::string_view what) && {
    if (ok()) return std::move(*this);
    return error().context(what);
  }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error)
      : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)
  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  const Error& error() const noexcept { return std::get<1>(state_); }
  Result context(std::string_view what) && {
    if (ok()) return {};
    return error().context(what);
  }

 private:
  std::variant<std::monostate, Error> state_;
};

using Status = Result<void>;

}  // namespace cofferdam

// NOLINTBEGIN(bugprone-macro-parentheses): declarations and results cannot be parenthesised.
#define COFFERDAM_CONCAT_INNER(a, b) a##b
#define COFFERDAM_CONCAT(a, b) COFFERDAM_CONCAT_INNER(a, b)

// TRY(expr): returns the error of a Status from the enclosing function.
#define TRY(expr)                                                \
  do {                                                           \
    auto cofferdam_status = (expr);                              \
    if (!cofferdam_status.ok()) return cofferdam_status.error(); \
  } while (false)

// TRY_ASSIGN(auto x, expr): x becomes the value, or the error is returned.
#define TRY_ASSIGN(declaration, expr) \
  TRY_ASSIGN_INNER(COFFERDAM_CONCAT(cofferdam_result_, __LINE__), declaration, expr)
#define TRY_ASSIGN_INNER(name, declaration, expr) \
  auto name = (expr);                             \
  if (!name.ok()) return name.error();            \
  declaration = std::move(name).value()
// NOLINTEND(bugprone-macro-parentheses)
