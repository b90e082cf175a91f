#include "server/checkpoint/safetensors/safetensors_json.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"

namespace kaon::checkpoint {

namespace {

using Json = nlohmann::ordered_json;

constexpr absl::string_view kMetadata = "__metadata__";
constexpr TensorType kTypes[] = {TensorType::kFloat32, TensorType::kBFloat16, TensorType::kFloat16,
                                 TensorType::kInt8,    TensorType::kUint8,    TensorType::kInt64,
                                 TensorType::kUint64};

std::string TypeNames() {
  std::string names;
  for (const TensorType type : kTypes)
    absl::StrAppend(&names, names.empty() ? "" : " ", NameOf(type));
  return names;
}

// Receives the parser's events. Each returns whether to continue, as the library requires; the
// first error stays in status().
class HeaderEvents {
 public:
  explicit HeaderEvents(absl::string_view file) : file_(file) {}

  bool null() { return Value("null"); }
  bool boolean(bool value) { return Value(value ? "true" : "false"); }
  bool number_integer(int64_t value) { return Value(absl::StrCat(value)); }
  bool number_float(double, const std::string& text) { return Value(text); }
  bool binary(Json::binary_t&) { return Value("binary"); }

  bool number_unsigned(uint64_t value) {
    if (place_ != Place::kArray) return Value(absl::StrCat(value));
    std::vector<uint64_t>& numbers = field_ == "shape" ? header_.tensors.back().shape : offsets_;
    const size_t limit = field_ == "shape" ? kMaxDimensions : 2;
    if (numbers.size() == limit) {
      return Fail(absl::StrCat("has more than ", limit, " numbers"));
    }
    numbers.push_back(value);
    return true;
  }

  bool string(std::string& value) {
    if (place_ == Place::kMetadata) {
      header_.metadata[field_] = std::move(value);
      return true;
    }
    if (place_ != Place::kTensor || field_ != "dtype") return Value(Quoted(value));
    for (const TensorType type : kTypes) {
      if (NameOf(type) != value) continue;
      header_.tensors.back().type = type;
      return true;
    }
    return Fail(absl::StrCat("is ", Quoted(value), ", expecting one of ", TypeNames()));
  }

  bool start_object(size_t) {
    switch (place_) {
      case Place::kOutside:
        place_ = Place::kHeader;
        return true;
      case Place::kHeader:
        place_ = tensor_ == kMetadata ? Place::kMetadata : Place::kTensor;
        return true;
      default:
        return Value("an object");
    }
  }

  bool key(std::string& name) {
    if (place_ == Place::kHeader) {
      fields_.clear();
      field_.clear();
      offsets_.clear();
      tensor_ = name;
      if (!names_.insert(name).second) return Fail("is there twice");
      if (name != kMetadata) header_.tensors.emplace_back().name = name;
      return true;
    }
    field_ = name;
    if (!fields_.insert(name).second) return Fail("is there twice");
    if (place_ == Place::kTensor && name != "dtype" && name != "shape" && name != "data_offsets") {
      return Fail("is unknown, expecting dtype, shape and data_offsets");
    }
    return true;
  }

  bool end_object() {
    if (place_ == Place::kHeader) {
      place_ = Place::kOutside;
      return true;
    }
    const bool is_tensor = place_ == Place::kTensor;
    place_ = Place::kHeader;
    if (!is_tensor) return true;
    for (const char* needed : {"dtype", "shape", "data_offsets"}) {
      field_ = needed;
      if (!fields_.contains(field_)) return Fail("is missing");
    }
    if (offsets_.size() != 2) {
      return Fail(absl::StrCat("has ", offsets_.size(), " numbers, expecting 2"));
    }
    header_.tensors.back().begin = offsets_[0];
    header_.tensors.back().end = offsets_[1];
    return true;
  }

  bool start_array(size_t) {
    if (place_ != Place::kTensor || field_ == "dtype") return Value("an array");
    place_ = Place::kArray;
    return true;
  }

  bool end_array() {
    place_ = Place::kTensor;
    return true;
  }

  bool parse_error(size_t position, const std::string&, const Json::exception& exception) {
    // The message ends with the token, which may be as long as the header.
    status_ = absl::InvalidArgumentError(
        absl::StrCat("file ", file_, ": header: byte ", position, ": ", Quoted(exception.what())));
    return false;
  }

  const absl::Status& status() const { return status_; }
  SafetensorsHeader Take() { return std::move(header_); }

 private:
  // kHeader: between tensors. kTensor, kMetadata: inside the object of that name. kArray: inside
  // shape or data_offsets.
  enum class Place { kOutside, kHeader, kMetadata, kTensor, kArray };

  bool Value(absl::string_view value) {
    switch (place_) {
      case Place::kOutside:
      case Place::kHeader:
        return Fail(absl::StrCat("is ", value, ", expecting an object"));
      case Place::kMetadata:
        return Fail(absl::StrCat("is ", value, ", expecting a string"));
      case Place::kArray:
        return Fail(absl::StrCat("contains ", value, ", expecting integers of 0 .. 2^64-1"));
      case Place::kTensor:
        break;
    }
    return Fail(absl::StrCat("is ", value, ", expecting ",
                             field_ == "dtype" ? "a string" : "an array of integers"));
  }

  bool Fail(absl::string_view what) {
    std::string where = absl::StrCat("file ", file_, ": header");
    if (place_ != Place::kOutside) absl::StrAppend(&where, ": tensor ", Quoted(tensor_));
    if (!field_.empty()) absl::StrAppend(&where, ": field ", Quoted(field_));
    status_ = absl::InvalidArgumentError(absl::StrCat(where, " ", what));
    return false;
  }

  const absl::string_view file_;
  Place place_ = Place::kOutside;
  SafetensorsHeader header_;
  absl::Status status_;
  // Current place of the parser.
  std::string tensor_;
  std::string field_;
  std::vector<uint64_t> offsets_;
  absl::flat_hash_set<std::string> names_;
  absl::flat_hash_set<std::string> fields_;
};

}  // namespace

absl::StatusOr<SafetensorsHeader> ParseHeaderJson(absl::string_view file, absl::string_view json) {
  HeaderEvents events(file);
  if (!Json::sax_parse(json.begin(), json.end(), &events)) return events.status();
  return events.Take();
}

std::string FormatHeaderJson(const std::map<std::string, std::string>& metadata,
                             absl::Span<const Tensor> tensors) {
  const auto dump = [](const Json& json) {
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
  };
  std::string text = "{";
  // Add each tensor as text: an object of the library would compare each name with all before it.
  const auto add = [&](absl::string_view name, const Json& value) {
    absl::StrAppend(&text, text.size() > 1 ? "," : "", dump(Json(std::string(name))), ":",
                    dump(value));
  };
  if (!metadata.empty()) add(kMetadata, Json(metadata));
  for (const Tensor& tensor : tensors) {
    Json value;
    value["dtype"] = std::string(NameOf(tensor.type));
    value["shape"] = tensor.shape;
    value["data_offsets"] = {tensor.begin, tensor.end};
    add(tensor.name, value);
  }
  return text + "}";
}

}  // namespace kaon::checkpoint
