// The only file that includes Arrow, whose headers take seconds to compile.
//
// SPDX-License-Identifier: Apache-2.0
#include "data/parquet_rows.h"

#include <arrow/api.h>
#include <arrow/util/float16.h>
#include <parquet/arrow/reader.h>
#include <parquet/file_reader.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/files.h"
#include "base/json_limits.h"
#include "base/utf8.h"

namespace tlt::data {

// Counts what rows take in memory, before they do: a dictionary, a run of equal values or a
// compressed page stands for any number of bytes.
class RowMeter {
 public:
  explicit RowMeter(int64_t file_bytes)
      : most_bytes_(std::max(ParquetRows::kMinDecodedBytes,
                             ParquetRows::kMaxDecodedPerByte * file_bytes)) {}

  // `allocated` are the bytes that Arrow has allocated for the file so far. A part of them counts,
  // since Arrow may copy a dictionary for every batch.
  void begin_row(int64_t allocated) {
    constexpr int64_t kAllocatedPerByte = 16;
    row_bytes_ = 0;
    file_bytes_ += (allocated - allocated_) / kAllocatedPerByte;
    allocated_ = allocated;
    add(sizeof(nlohmann::ordered_json));
  }

  void add(size_t bytes) {
    row_bytes_ += static_cast<int64_t>(bytes);
    file_bytes_ += static_cast<int64_t>(bytes);
    TLT_CHECK_INPUT(row_bytes_ <= ParquetRows::kMaxRowBytes, "a row of more than ",
                    ParquetRows::kMaxRowBytes >> 20, " MB is not supported");
    TLT_CHECK_INPUT(file_bytes_ <= most_bytes_, "the rows so far have more than ",
                    most_bytes_ >> 20,
                    " MB, the most for a file of this size; write it again without compression and "
                    "dictionaries");
  }

 private:
  const int64_t most_bytes_;
  int64_t row_bytes_ = 0, file_bytes_ = 0, allocated_ = 0;
};

namespace {

using Json = nlohmann::ordered_json;

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

int64_t bytes_of_file(const std::string& path) {
  return static_cast<int64_t>(std::filesystem::file_size(path));
}

Json text_value(std::string_view text, RowMeter& meter) {
  meter.add(text.size());
  TLT_CHECK_INPUT(is_valid_utf8(text), "a string is not UTF-8; save it as UTF-8");
  return std::string(text);
}

Json bytes_value(std::string_view bytes, RowMeter& meter) {
  meter.add(bytes.size());
  return Json::binary({bytes.begin(), bytes.end()});
}

Json value_of(const arrow::Array& array, int64_t i, RowMeter& meter);

// An object of n members takes n^2 comparisons, as in JSON.
void check_members(int64_t members) {
  TLT_CHECK_INPUT(members <= kMaxJsonMembers, "an object with more than ", kMaxJsonMembers,
                  " members is not supported");
}

template <class Array>
Json list_value(const Array& array, int64_t i, RowMeter& meter) {
  Json list = Json::array();
  const int64_t begin = array.value_offset(i), end = begin + array.value_length(i);
  for (int64_t k = begin; k < end; ++k) list.push_back(value_of(*array.values(), k, meter));
  return list;
}

Json struct_value(const arrow::StructArray& array, int64_t i, RowMeter& meter) {
  Json object = Json::object();
  check_members(array.num_fields());
  for (int field = 0; field < array.num_fields(); ++field) {
    const std::string& name = array.struct_type()->field(field)->name();
    meter.add(name.size());
    object[name] = value_of(*array.field(field), i, meter);
  }
  return object;
}

// An object if the keys are strings, else a list of pairs.
Json map_value(const arrow::MapArray& array, int64_t i, RowMeter& meter) {
  const bool is_object = arrow::is_base_binary_like(array.keys()->type_id());
  Json map = is_object ? Json::object() : Json::array();
  const int64_t begin = array.value_offset(i), end = begin + array.value_length(i);
  if (is_object) check_members(end - begin);
  for (int64_t k = begin; k < end; ++k) {
    Json key = value_of(*array.keys(), k, meter), item = value_of(*array.items(), k, meter);
    if (is_object) {
      map[key.is_string() ? key.get<std::string>() : key.dump()] = std::move(item);
    } else {
      map.push_back(Json::array({std::move(key), std::move(item)}));
    }
  }
  return map;
}

// Dates, times, decimals …: in Arrow's notation.
Json other_value(const arrow::Array& array, int64_t i, RowMeter& meter) {
  const auto scalar = array.GetScalar(i);
  TLT_CHECK_INPUT(scalar.ok(), "type ", array.type()->ToString(),
                  " cannot be read; save it as text");
  return text_value((*scalar)->ToString(), meter);
}

template <class Array>
const Array& as(const arrow::Array& array) {
  return static_cast<const Array&>(array);
}

// NOLINTNEXTLINE(readability-function-size): a list of types.
Json value_of(const arrow::Array& array, int64_t i, RowMeter& meter) {
  meter.add(sizeof(Json));
  if (array.IsNull(i)) return nullptr;
  switch (array.type_id()) {
    case arrow::Type::BOOL:
      return as<arrow::BooleanArray>(array).Value(i);
    case arrow::Type::INT8:
      return as<arrow::Int8Array>(array).Value(i);
    case arrow::Type::INT16:
      return as<arrow::Int16Array>(array).Value(i);
    case arrow::Type::INT32:
      return as<arrow::Int32Array>(array).Value(i);
    case arrow::Type::INT64:
      return as<arrow::Int64Array>(array).Value(i);
    case arrow::Type::UINT8:
      return as<arrow::UInt8Array>(array).Value(i);
    case arrow::Type::UINT16:
      return as<arrow::UInt16Array>(array).Value(i);
    case arrow::Type::UINT32:
      return as<arrow::UInt32Array>(array).Value(i);
    case arrow::Type::UINT64:
      return as<arrow::UInt64Array>(array).Value(i);
    case arrow::Type::HALF_FLOAT:
      return arrow::util::Float16::FromBits(as<arrow::HalfFloatArray>(array).Value(i)).ToDouble();
    case arrow::Type::FLOAT:
      return as<arrow::FloatArray>(array).Value(i);
    case arrow::Type::DOUBLE:
      return as<arrow::DoubleArray>(array).Value(i);
    case arrow::Type::STRING:
      return text_value(as<arrow::StringArray>(array).GetView(i), meter);
    case arrow::Type::LARGE_STRING:
      return text_value(as<arrow::LargeStringArray>(array).GetView(i), meter);
    case arrow::Type::STRING_VIEW:
      return text_value(as<arrow::StringViewArray>(array).GetView(i), meter);
    case arrow::Type::BINARY:
      return bytes_value(as<arrow::BinaryArray>(array).GetView(i), meter);
    case arrow::Type::LARGE_BINARY:
      return bytes_value(as<arrow::LargeBinaryArray>(array).GetView(i), meter);
    case arrow::Type::FIXED_SIZE_BINARY:
      return bytes_value(as<arrow::FixedSizeBinaryArray>(array).GetView(i), meter);
    case arrow::Type::LIST:
      return list_value(as<arrow::ListArray>(array), i, meter);
    case arrow::Type::LARGE_LIST:
      return list_value(as<arrow::LargeListArray>(array), i, meter);
    case arrow::Type::FIXED_SIZE_LIST:
      return list_value(as<arrow::FixedSizeListArray>(array), i, meter);
    case arrow::Type::STRUCT:
      return struct_value(as<arrow::StructArray>(array), i, meter);
    case arrow::Type::MAP:
      return map_value(as<arrow::MapArray>(array), i, meter);
    case arrow::Type::DICTIONARY: {
      const auto& words = as<arrow::DictionaryArray>(array);
      return value_of(*words.dictionary(), words.GetValueIndex(i), meter);
    }
    case arrow::Type::EXTENSION:
      return value_of(*as<arrow::ExtensionArray>(array).storage(), i, meter);
    default:
      return other_value(array, i, meter);
  }
}

// Limits of the memory that a file may allocate at once. Pages have about a megabyte; the length
// that a damaged page states would be allocated and zeroed before the error is noticed.
constexpr int64_t kMostBytes = int64_t{1} << 28, kMostBytesOfAByte = 16;

int64_t most_bytes(const std::string& path) {
  return std::max(kMostBytes, kMostBytesOfAByte * bytes_of_file(path));
}

// Of the pool with this limit.
bool is_out_of_memory(const std::string& message) {
  return message.find("MemoryPool") != message.npos;
}

// Reads column by column and page by page, in the caller's thread: Arrow's defaults read whole row
// groups ahead.
parquet::ReaderProperties page_by_page(arrow::MemoryPool* memory) {
  parquet::ReaderProperties properties(memory);
  properties.enable_buffered_stream();
  properties.set_page_checksum_verification(true);
  return properties;
}

parquet::ArrowReaderProperties in_batches() {
  parquet::ArrowReaderProperties properties(/*use_threads=*/false);
  properties.set_batch_size(ParquetRows::kBatchRows);
  properties.set_pre_buffer(false);
  return properties;
}

// The result of `open`; its errors, returned or thrown (for a damaged length also
// std::length_error), become an InputError that begins with `place`. A page that is too large and
// the damaged length of a page are the same error to Arrow.
template <class Open>
auto checked(const std::string& place, const char* what, Open open) {
  std::string message;
  try {
    auto result = open();
    if (result.ok()) return std::move(result).ValueUnsafe();
    message = result.status().message();
  } catch (const std::exception& error) {
    message = error.what();
  }
  const std::string fault =
      is_out_of_memory(message)
          ? "a page or a batch of rows needs more memory than the limit; write the file again with "
            "smaller pages and row groups, or copy it again if it is damaged"
          : std::string(what) + "; copy the file again";
  throw InputError(place + ": " + fault + " (" + first_line(message) + ")");
}

}  // namespace

struct ParquetRows::File {
  explicit File(const std::string& name)
      : path(name), memory(own_memory.get(), most_bytes(name)), meter(bytes_of_file(name)) {}

  const std::string path;
  const std::unique_ptr<arrow::MemoryPool> own_memory = arrow::MemoryPool::CreateDefault();
  arrow::CappedMemoryPool memory;
  RowMeter meter;
  std::unique_ptr<parquet::arrow::FileReader> reader;
  std::unique_ptr<arrow::RecordBatchReader> batches;
  std::vector<Column> columns;
  std::shared_ptr<arrow::RecordBatch> batch;  // nullptr: none yet
  int64_t next = 0;                           // row of the batch
  int64_t rows = 0;                           // returned so far

  std::string row_place(int64_t row) const { return path + ": row " + std::to_string(row); }

  // False at the end.
  bool try_fill() {
    while (!batch || next == batch->num_rows()) {
      batch = checked(row_place(rows + 1), "the file is damaged from here on",
                      [&] { return batches->Next(); });
      next = 0;
      if (!batch) return false;
    }
    return true;
  }
};

ParquetRows::ParquetRows(const std::string& path) {
  open_file(path);  // throws the reason if it cannot be opened
  file_ = std::make_unique<File>(path);
  file_->reader = checked(path, "not a whole Parquet file", [&] {
    parquet::arrow::FileReaderBuilder builder;
    const arrow::Status opened =
        builder.OpenFile(path, /*memory_map=*/false, page_by_page(&file_->memory));
    if (!opened.ok()) return arrow::Result<std::unique_ptr<parquet::arrow::FileReader>>(opened);
    return builder.memory_pool(&file_->memory)->properties(in_batches())->Build();
  });
  file_->batches =
      checked(path, "the file is damaged", [&] { return file_->reader->GetRecordBatchReader(); });
  TLT_CHECK_INPUT(is_valid_utf8(file_->batches->schema()->ToString()), path,
                  ": a column whose name is not UTF-8; name it in UTF-8");
  TLT_CHECK_INPUT(file_->batches->schema()->num_fields() <= kMaxJsonMembers, path, ": more than ",
                  kMaxJsonMembers, " columns are not supported");
  for (const auto& field : file_->batches->schema()->fields())
    file_->columns.push_back({field->name(), field->type()->ToString()});
}

ParquetRows::~ParquetRows() = default;

bool ParquetRows::try_next(Json& row) {
  if (!file_->try_fill()) return false;
  ++file_->rows;
  row = Json::object();
  int column = -1;
  try {
    file_->meter.begin_row(file_->memory.total_bytes_allocated());
    for (column = 0; column < file_->batch->num_columns(); ++column) {
      const std::string& name = file_->columns[static_cast<size_t>(column)].name;
      file_->meter.add(name.size());
      row[name] = value_of(*file_->batch->column(column), file_->next, file_->meter);
    }
  } catch (const InputError& error) {
    const std::string name =
        column < 0 ? "" : "column " + file_->columns[static_cast<size_t>(column)].name + ": ";
    throw InputError(place() + ": " + name + error.what());
  }
  ++file_->next;
  return true;
}

std::string ParquetRows::place() const { return file_->row_place(file_->rows); }

int64_t ParquetRows::size() const {
  return file_->reader->parquet_reader()->metadata()->num_rows();
}

int64_t ParquetRows::row_groups() const { return file_->reader->num_row_groups(); }

const std::vector<ParquetRows::Column>& ParquetRows::columns() const { return file_->columns; }

}  // namespace tlt::data
