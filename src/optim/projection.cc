#include "optim/projection.h"

#include <Eigen/Dense>
#include <cmath>

#include "nn/init.h"

namespace lode {
namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

constexpr std::int64_t kSmallSide = 64;
constexpr int kColdIterations = 4, kWarmIterations = 1;

Matrix to_eigen(ConstView x) {
  return Eigen::Map<const Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>, 0,
                    Eigen::OuterStride<>>(x.row<float>(0), x.rows, x.cols, Eigen::OuterStride<>(x.stride))
      .cast<double>();
}

void write_rows(const Matrix& rows, View out) {
  for (std::int64_t r = 0; r < out.rows; ++r) {
    Eigen::Index largest = 0;
    rows.row(r).cwiseAbs().maxCoeff(&largest);
    const double sign = rows(r, largest) < 0 ? -1 : 1;
    for (std::int64_t c = 0; c < out.cols; ++c) out.row<float>(r)[c] = static_cast<float>(sign * rows(r, c));
  }
}

// Eigenvectors of the largest eigenvalues as rows, largest first.
Matrix leading_vectors(const Matrix& symmetric, std::int64_t count) {
  const Eigen::SelfAdjointEigenSolver<Matrix> solver(symmetric);
  return solver.eigenvectors().rightCols(count).rowwise().reverse().transpose();
}

// Rows made orthonormal, as a QR decomposition of the transpose does.
Matrix orthonormal_rows(const Matrix& rows) {
  const Matrix columns = rows.transpose();
  Eigen::HouseholderQR<Matrix> qr(columns);
  return (qr.householderQ() * Matrix::Identity(columns.rows(), columns.cols())).transpose();
}

}  // namespace

Projection::Projection(const Parameter& parameter, ProjectedSide where, std::int64_t wanted) {
  const bool standard = parameter.rows >= parameter.cols;
  right = where == ProjectedSide::right || (where == ProjectedSide::standard && standard) ||
          (where == ProjectedSide::reverse_standard && !standard);
  rank = std::min({wanted, parameter.rows, parameter.cols});
  side = right ? parameter.cols : parameter.rows;
  low_rows = right ? parameter.rows : rank;
  low_cols = right ? rank : parameter.cols;
}

void Projection::forward(Context& context, ConstView projector, ConstView full, View low) const {
  if (right) {
    multiply(context, {.a = full, .b = projector, .transpose_b = true, .c = low});
  } else {
    multiply(context, {.a = projector, .b = full, .c = low});
  }
}

void Projection::back(Context& context, ConstView projector, ConstView low, View full) const {
  if (right) {
    multiply(context, {.a = low, .b = projector, .c = full});
  } else {
    multiply(context, {.a = projector, .b = low, .transpose_a = true, .c = full});
  }
}

void fill_random_projector(Context& context, PhiloxKey key, View projector) {
  const double deviation = 1 / std::sqrt(static_cast<double>(projector.rows));
  fill_normal(context, projector, key, static_cast<float>(deviation));
}

void find_subspace(Context& context, ConstView g, const Projection& p, const SubspaceOptions& options,
                   View projector) {
  if (options.exact || p.side <= kSmallSide || 2 * p.rank > p.side) {
    const Matrix full = to_eigen(g);
    return write_rows(
        leading_vectors(p.right ? Matrix(full.transpose() * full) : Matrix(full * full.transpose()), p.rank),
        projector);
  }
  if (!options.warm) fill_random_projector(context, options.key, projector);
  Tensor low = scratch(context, p.low_rows, p.low_cols);
  const int iterations = options.warm ? kWarmIterations : kColdIterations;
  for (int i = 0; i < iterations; ++i) {
    p.forward(context, projector, g, low.view());
    if (p.right) {
      multiply(context, {.a = low.view(), .b = g, .transpose_a = true, .c = projector});
    } else {
      multiply(context, {.a = low.view(), .b = g, .transpose_b = true, .c = projector});
    }
    write_rows(orthonormal_rows(to_eigen(projector)), projector);
  }
  // Rotated within its span so that rows are singular vectors of the projected matrix, largest first.
  p.forward(context, projector, g, low.view());
  const Matrix projected = to_eigen(low.view());
  const Matrix gram =
      p.right ? Matrix(projected.transpose() * projected) : Matrix(projected * projected.transpose());
  write_rows(leading_vectors(gram, p.rank) * to_eigen(projector), projector);
}

}  // namespace lode
