// Rational and Ball: numbers of FLINT and Arb as C++ values.
//
// A Rational is an exact fraction of any size, a Ball a complex number with an error bound. They
// are passed to the libraries' functions as they are:
//
//   Rational sum;
//   fmpq_add(sum, half, third);
//
// FLINT aborts the process on a division by zero and without memory: check both before.
//
// Threading  a value belongs to one thread.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <flint/fmpq.h>
#if __has_include(<flint/acb.h>)
#include <flint/acb.h>  // FLINT 3
#else
#include <acb.h>
#endif

#include <cstdint>
#include <utility>

namespace tlt::math_equal {

// The libraries' caches of this thread are freed when it ends.
inline void free_at_thread_end() {
  struct Caches {
    ~Caches() { flint_cleanup(); }
  };
  thread_local const Caches caches;
}

class Rational {
 public:
  explicit Rational(int64_t numerator = 0, uint64_t denominator = 1) {
    free_at_thread_end();
    fmpq_init(raw_);
    fmpq_set_si(raw_, numerator, denominator);
  }
  Rational(const Rational& other) : Rational() { fmpq_set(raw_, other.raw_); }
  Rational(Rational&& other) noexcept : Rational() { fmpq_swap(raw_, other.raw_); }
  Rational& operator=(Rational other) noexcept { return fmpq_swap(raw_, other.raw_), *this; }
  ~Rational() { fmpq_clear(raw_); }

  bool operator==(const Rational& other) const { return fmpq_equal(raw_, other.raw_); }

  // NOLINTBEGIN(google-explicit-constructor): an argument of FLINT's functions
  operator fmpq*() { return raw_; }
  operator const fmpq*() const { return raw_; }
  // NOLINTEND(google-explicit-constructor)
  fmpz* numerator() { return fmpq_numref(raw_); }
  fmpz* denominator() { return fmpq_denref(raw_); }
  const fmpz* numerator() const { return fmpq_numref(raw_); }
  const fmpz* denominator() const { return fmpq_denref(raw_); }

 private:
  fmpq_t raw_;
};

class Ball {
 public:
  explicit Ball(double real = 0, double imaginary = 0) {
    free_at_thread_end();
    acb_init(raw_);
    acb_set_d_d(raw_, real, imaginary);
  }
  Ball(const Ball& other) : Ball() { acb_set(raw_, other.raw_); }
  Ball(Ball&& other) noexcept : Ball() { acb_swap(raw_, other.raw_); }
  Ball& operator=(Ball other) noexcept { return acb_swap(raw_, other.raw_), *this; }
  ~Ball() { acb_clear(raw_); }

  // NOLINTBEGIN(google-explicit-constructor): an argument of Arb's functions
  operator acb_ptr() { return raw_; }
  operator acb_srcptr() const { return raw_; }
  // NOLINTEND(google-explicit-constructor)
  arb_ptr real() { return acb_realref(raw_); }
  arb_ptr imaginary() { return acb_imagref(raw_); }
  arb_srcptr real() const { return acb_realref(raw_); }
  arb_srcptr imaginary() const { return acb_imagref(raw_); }

 private:
  acb_t raw_;
};

}  // namespace tlt::math_equal
