#include "server/rpc/wire/infer_parameter.h"

#include <bit>

namespace weir {
namespace {

void ReadParameterValue(WireReader& reader, InferParameter* parameter) {
  while (reader.NextField()) {
    switch (reader.number()) {
      case 1:
        parameter->value = reader.Bool();
        break;
      case 2:
        parameter->value = reader.Int64();
        break;
      case 3:
        parameter->value =
            reader.String("string_param", kMaxStringParameterBytes);
        break;
      case 4:
        parameter->value = std::bit_cast<double>(reader.Fixed64());
        break;
      case 5:
        parameter->value = reader.Varint();
        break;
      default:
        reader.Skip();
    }
  }
}

size_t ParameterValueSize(const InferParameter& parameter) {
  switch (parameter.value.index()) {
    case 1:
      return 2;
    case 2:
      return VarintFieldSize(
          2, static_cast<uint64_t>(std::get<int64_t>(parameter.value)));
    case 3:
      return BytesFieldSize(3,
                            std::get<std::string_view>(parameter.value).size());
    case 4:
      return TagSize(4) + sizeof(double);
    case 5:
      return VarintFieldSize(5, std::get<uint64_t>(parameter.value));
    default:
      return 0;
  }
}

}  // namespace

void ReadParameter(WireReader& reader, size_t limit,
                   ArenaList<InferParameter>* list) {
  InferParameter* parameter = list->Add(limit);
  if (parameter == nullptr) {
    return reader.FailTooMany("parameters", limit);
  }
  reader.Message("parameters", list->size() - 1, [&](WireReader&) {
    while (reader.NextField()) {
      switch (reader.number()) {
        case 1:
          parameter->name = reader.Name("key");
          break;
        case 2:
          reader.Message("value", [&](WireReader&) {
            ReadParameterValue(reader, parameter);
          });
          break;
        default:
          reader.Skip();
      }
    }
  });
}

size_t ParameterSize(const InferParameter& parameter) {
  return BytesFieldSize(1, parameter.name.size()) +
         BytesFieldSize(2, ParameterValueSize(parameter));
}

void WriteParameter(const InferParameter& parameter, uint32_t number,
                    WireWriter* writer) {
  writer->BeginBytes(number, ParameterSize(parameter));
  writer->BytesField(1, parameter.name);
  writer->BeginBytes(2, ParameterValueSize(parameter));
  switch (parameter.value.index()) {
    case 1:
      return writer->VarintField(1, std::get<bool>(parameter.value));
    case 2:
      return writer->VarintField(
          2, static_cast<uint64_t>(std::get<int64_t>(parameter.value)));
    case 3:
      return writer->BytesField(3, std::get<std::string_view>(parameter.value));
    case 4:
      return writer->DoubleField(4, std::get<double>(parameter.value));
    case 5:
      return writer->VarintField(5, std::get<uint64_t>(parameter.value));
    default:
      return;
  }
}

}  // namespace weir
