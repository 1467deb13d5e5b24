#include "data/byte_reader.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <new>

#include "core/fail.h"

namespace lode {
namespace {

class PlainReader : public ByteReader {
 public:
  PlainReader(FileSystem& files, const std::string& path) : file_(files.map(path)), rest_(file_->text()) {}

  std::size_t read(char* out, std::size_t count) override {
    count = std::min(count, rest_.size());
    std::copy_n(rest_.data(), count, out);
    rest_.remove_prefix(count);
    return count;
  }

 private:
  std::unique_ptr<MappedFile> file_;
  std::string_view rest_;
};

class GzipReader : public ByteReader {
 public:
  GzipReader(FileSystem& files, const std::string& path)
      : path_(path), file_(files.map(path)), rest_(file_->text()) {
    // 16: a gzip header is expected, not zlib's.
    if (::inflateInit2(&stream_, 15 + 16) != Z_OK) throw std::bad_alloc();
  }
  ~GzipReader() override { ::inflateEnd(&stream_); }
  GzipReader(const GzipReader&) = delete;
  GzipReader& operator=(const GzipReader&) = delete;

  std::size_t read(char* out, std::size_t count) override {
    count = std::min<std::size_t>(count, UINT_MAX);
    stream_.next_out = reinterpret_cast<Bytef*>(out);
    stream_.avail_out = static_cast<uInt>(count);
    while (stream_.avail_out == count && !done_) inflate_some();
    return count - stream_.avail_out;
  }

 private:
  void inflate_some() {
    const auto available = static_cast<uInt>(std::min<std::size_t>(rest_.size(), UINT_MAX));
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(rest_.data()));
    stream_.avail_in = available;
    const int result = ::inflate(&stream_, Z_NO_FLUSH);
    rest_.remove_prefix(available - stream_.avail_in);
    if (result == Z_STREAM_END) {
      // Padding with zeros is common on tapes and in archives; anything else must be another member.
      if (rest_.find_first_not_of('\0') == std::string_view::npos) {
        done_ = true;
      } else {
        ::inflateReset(&stream_);
      }
    } else if (result == Z_BUF_ERROR || (result == Z_OK && rest_.empty() && stream_.avail_out != 0)) {
      fail(ErrorKind::data, "{}: truncated gzip file: it ends within its data; fetch it again", path_);
    } else if (result != Z_OK) {
      fail(ErrorKind::data, "{}: not a gzip file, or a damaged one: {}", path_,
           stream_.msg != nullptr ? stream_.msg : "no reason known");
    }
  }

  std::string path_;
  std::unique_ptr<MappedFile> file_;
  std::string_view rest_;
  z_stream stream_{};
  bool done_ = false;
};

class ZstdReader : public ByteReader {
 public:
  ZstdReader(FileSystem& files, const std::string& path)
      : path_(path), file_(files.map(path)), stream_(::ZSTD_createDStream()) {
    if (stream_ == nullptr) throw std::bad_alloc();
    input_ = {file_->text().data(), file_->text().size(), 0};
  }
  ~ZstdReader() override { ::ZSTD_freeDStream(stream_); }
  ZstdReader(const ZstdReader&) = delete;
  ZstdReader& operator=(const ZstdReader&) = delete;

  std::size_t read(char* out, std::size_t count) override {
    ZSTD_outBuffer output{out, count, 0};
    while (output.pos == 0) {
      if (input_.pos == input_.size && at_frame_end_) break;
      const std::size_t consumed = input_.pos;
      const std::size_t result = ::ZSTD_decompressStream(stream_, &output, &input_);
      if (::ZSTD_isError(result)) {
        fail(ErrorKind::data, "{}: not a zstd file, or a damaged one: {}", path_,
             ::ZSTD_getErrorName(result));
      }
      at_frame_end_ = result == 0;
      if (!at_frame_end_ && output.pos == 0 && input_.pos == consumed) fail_truncated();
    }
    return output.pos;
  }

 private:
  [[noreturn]] void fail_truncated() const {
    fail(ErrorKind::data, "{}: truncated zstd file: it ends within its data; fetch it again", path_);
  }

  std::string path_;
  std::unique_ptr<MappedFile> file_;
  ZSTD_DStream* stream_;
  ZSTD_inBuffer input_{};
  bool at_frame_end_ = false;  // an empty file is no zstd file
};

}  // namespace

std::unique_ptr<ByteReader> open_bytes(FileSystem& files, const std::string& path, Compression compression) {
  switch (compression) {
    case Compression::gzip:
      return std::make_unique<GzipReader>(files, path);
    case Compression::zstd:
      return std::make_unique<ZstdReader>(files, path);
    case Compression::none:
      break;
  }
  return std::make_unique<PlainReader>(files, path);
}

}  // namespace lode
