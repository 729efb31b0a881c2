// The matrix products, written once over the vectors of an instruction set: every set performs the
// same float operations in the same order, so all give the same bits, whatever the row tile.
//
// For each output and row, blocks of 32 inputs ascending:
//   t   = float(sum of weight * activation, an exact integer) * weight scale + minimum * sum
//   sum = fma(t, activation scale, sum)
//
// Included by the files of the instruction sets, which differ in -m flags: all of it is in an
// unnamed namespace, so that no two share a symbol.
#pragma once

#include <cstring>

#include "kernels/cpu/panel_layout.h"

namespace coppice::cpu {
namespace {

/// Where a tile reads its activations: rows first_row.. of x.
struct TileRows {
  const Activations& x;
  int first_row;

  const IntegerBlock& integers(int r, int block) const {
    return x.integers[(first_row + r) / kRowGroup * block_count(x.inputs) + block];
  }
  const FloatBlock& floats(int r, int block) const {
    return x.floats[(first_row + r) / kRowGroup * block_count(x.inputs) + block];
  }
};

/// Scales of one block of 32 inputs and 16 outputs, as floats (exact for every type).
template <class Isa>
struct BlockScales {
  typename Isa::Floats scale;    // of values 0..31, or 0..15 where there are two
  typename Isa::Floats second;   // Q6_K: scale of values 16..31
  typename Isa::Floats minimum;  // what a q of 0 stands for
};

