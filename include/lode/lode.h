// Everything public.
#pragma once

#include "lode/error.h"
#include "lode/export.h"
#include "lode/run.h"
